// Future: a pending operation and its result. Included by hvd.hpp.
#pragma once

#include <chrono>
#include <utility>

#include "hvd.h"
#include "hvd/work.hpp"

namespace hvd {
inline namespace v1 {

// A pending operation. Movable; used by one thread at a time. get() may be called once. The destructor waits.
template <typename Result>
class [[nodiscard]] Future {
 public:
  using Collect = Result (*)(hvd_work*);  // creates the result from the completed work

  Future(hvd_work* work, Collect collect) : work_(work), collect_(collect) {}

  // False after get(), or after a move from this object.
  bool valid() const { return work_.valid(); }

  // Returns whether the operation has ended, successfully or not.
  bool ready() const { return work_.ready(); }

  // Waits until the operation has ended; throws its error.
  void wait() const { work_.wait(); }

  // Waits for at most `limit`; returns false if the operation has not ended by then.
  bool wait_for(std::chrono::microseconds limit) const { return work_.wait_for(limit); }

  // Waits and returns the result.
  Result get() {
    const Future done = std::move(*this);  // releases the work in any case
    done.wait();
    return done.collect_(done.work_.get());
  }

 private:
  detail::Work work_;
  Collect collect_;
};

}  // namespace v1
}  // namespace hvd
