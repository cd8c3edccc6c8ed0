// Future: a pending operation and its result. Included by hvd.hpp.
#pragma once

#include <chrono>
#include <utility>

#include "hvd.h"
#include "hvd/error.hpp"

namespace hvd {
inline namespace v1 {

// A pending operation. Movable; used by one thread at a time. get() may be called once. The destructor waits.
template <typename Result>
class [[nodiscard]] Future {
 public:
  using Collect = Result (*)(hvd_work*);  // creates the result from the completed work

  Future(hvd_work* work, Collect collect) : work_(work), collect_(collect) {}
  Future(Future&& other) noexcept : work_(std::exchange(other.work_, nullptr)), collect_(other.collect_) {}
  Future& operator=(Future&& other) noexcept {
    std::swap(work_, other.work_);
    std::swap(collect_, other.collect_);
    return *this;
  }
  ~Future() {
    if (work_ == nullptr) return;
    hvd_work_wait(work_, -1);
    hvd_work_free(work_);
  }

  // False after get(), or after a move from this object.
  bool valid() const { return work_ != nullptr; }

  // Returns whether the operation has ended, successfully or not.
  bool ready() const { return hvd_work_poll(work()) != 0; }

  // Waits until the operation has ended; throws its error.
  void wait() const { detail::check(hvd_work_wait(work(), -1)); }

  // Waits for at most `limit`; returns false if the operation has not ended by then.
  bool wait_for(std::chrono::microseconds limit) const {
    const hvd_status status = hvd_work_wait(work(), limit.count() > 0 ? limit.count() : 0);
    if (status == HVD_TIMEOUT && hvd_work_poll(work()) == 0) return false;
    // It may have ended since then, or HVD_TIMEOUT be its own result.
    detail::check(status == HVD_TIMEOUT ? hvd_work_wait(work(), 0) : status);
    return true;
  }

  // Waits and returns the result.
  Result get() {
    const Future done = std::move(*this);  // releases the work in any case
    done.wait();
    return done.collect_(done.work_);
  }

 private:
  hvd_work* work() const {
    if (work_ == nullptr) throw InvalidArgument("this future holds no operation: get() was called, or it was moved");
    return work_;
  }

  hvd_work* work_;
  Collect collect_;
};

}  // namespace v1
}  // namespace hvd
