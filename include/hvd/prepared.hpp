// Prepared: an operation that was checked once and is started many times. Included by hvd.hpp.
#pragma once

#include <chrono>
#include <utility>

#include "hvd.h"
#include "hvd/error.hpp"

namespace hvd {
inline namespace v1 {

// An operation on certain memory, which must stay valid as long as this object, and untouched from start() until the
// operation has ended. Movable; used by one thread at a time. It is of the job, or the process set, in which it was
// prepared: after shutdown() it can only be destroyed. The destructor waits for the last start.
class [[nodiscard]] Prepared {
 public:
  // Takes over a work of hvd_prepare().
  explicit Prepared(hvd_work* work) : work_(work) {}
  Prepared(Prepared&& other) noexcept : work_(std::exchange(other.work_, nullptr)) {}
  Prepared& operator=(Prepared&& other) noexcept {
    std::swap(work_, other.work_);
    return *this;
  }
  ~Prepared() {
    if (work_ == nullptr) return;
    hvd_work_wait(work_, -1);
    hvd_work_free(work_);
  }

  // Starts it, and returns at once. All ranks must start it. Throws InvalidArgument if the last start has not ended.
  void start() { detail::check(hvd_start(work())); }

  // Returns whether the last start has ended, successfully or not; true before the first.
  bool ready() const { return hvd_work_poll(work()) != 0; }

  // Waits until the last start has ended; throws its error.
  void wait() const { detail::check(hvd_work_wait(work(), -1)); }

  // Waits for at most `limit`; returns false if it has not ended by then.
  bool wait_for(std::chrono::microseconds limit) const {
    const hvd_status status = hvd_work_wait(work(), limit.count() > 0 ? limit.count() : 0);
    if (status == HVD_TIMEOUT && hvd_work_poll(work()) == 0) return false;
    // It may have ended since then, or HVD_TIMEOUT be its own result.
    detail::check(status == HVD_TIMEOUT ? hvd_work_wait(work(), 0) : status);
    return true;
  }

  // start() and wait(), performed on this thread if no other operation is pending.
  void operator()() { detail::check(hvd_start_and_wait(work(), -1)); }

 private:
  hvd_work* work() const {
    if (work_ == nullptr) throw InvalidArgument("this object holds no operation: it was moved");
    return work_;
  }

  hvd_work* work_;
};

}  // namespace v1
}  // namespace hvd
