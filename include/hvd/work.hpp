// Work: owns an hvd_work, the C interface's handle of an operation. Included by hvd.hpp.
#pragma once

#include <chrono>
#include <utility>

#include "hvd.h"
#include "hvd/error.hpp"

namespace hvd {
inline namespace v1 {
namespace detail {

// The destructor waits for the operation. Empty once moved from: then all but the destructor throw InvalidArgument.
class Work {
 public:
  explicit Work(hvd_work* work) : work_(work) {}
  Work(Work&& other) noexcept : work_(std::exchange(other.work_, nullptr)) {}
  Work& operator=(Work&& other) noexcept {
    Work moved(std::move(other));  // which leaves `other` empty, and waits for the operation that was here
    std::swap(work_, moved.work_);
    return *this;
  }
  ~Work() {
    if (work_ == nullptr) return;
    hvd_work_wait(work_, -1);
    hvd_work_free(work_);
  }

  bool valid() const { return work_ != nullptr; }

  hvd_work* get() const {
    if (work_ == nullptr)
      throw InvalidArgument("this object holds no operation: its result was taken, or it was moved");
    return work_;
  }

  bool ready() const { return hvd_work_poll(get()) != 0; }

  void wait() const { check(hvd_work_wait(get(), -1)); }

  bool wait_for(std::chrono::microseconds limit) const {
    const hvd_status status = hvd_work_wait(get(), limit.count() > 0 ? limit.count() : 0);
    if (status == HVD_TIMEOUT && hvd_work_poll(get()) == 0) return false;
    // It may have ended since then, or HVD_TIMEOUT be its own result.
    check(status == HVD_TIMEOUT ? hvd_work_wait(get(), 0) : status);
    return true;
  }

 private:
  hvd_work* work_;
};

}  // namespace detail
}  // namespace v1
}  // namespace hvd
