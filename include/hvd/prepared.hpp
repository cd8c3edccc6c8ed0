// Prepared: an operation that was checked once and is started many times. Included by hvd.hpp.
#pragma once

#include <chrono>

#include "hvd.h"
#include "hvd/error.hpp"
#include "hvd/work.hpp"

namespace hvd {
inline namespace v1 {

// An operation on certain memory, which must stay valid as long as this object, and untouched from start() until the
// operation has ended. Movable; used by one thread at a time. It is of the job, or the process set, in which it was
// prepared: after shutdown() it can only be destroyed. The destructor waits for the last start.
class [[nodiscard]] Prepared {
 public:
  // Takes over a work of hvd_prepare().
  explicit Prepared(hvd_work* work) : work_(work) {}

  // Starts it, and returns at once. All ranks must start it. Throws InvalidArgument if the last start has not ended.
  void start() { detail::check(hvd_start(work_.get())); }

  // Returns whether the last start has ended, successfully or not; true before the first.
  bool ready() const { return work_.ready(); }

  // Waits until the last start has ended; throws its error.
  void wait() const { work_.wait(); }

  // Waits for at most `limit`; returns false if it has not ended by then.
  bool wait_for(std::chrono::microseconds limit) const { return work_.wait_for(limit); }

  // start() and wait(), performed on this thread if no other operation is pending.
  void operator()() { detail::check(hvd_start_and_wait(work_.get(), -1)); }

 private:
  detail::Work work_;
};

}  // namespace v1
}  // namespace hvd
