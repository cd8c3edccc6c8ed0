// Future: an operation under way, its end and its result. Included by hvd.hpp.
#pragma once

#include <chrono>
#include <utility>

#include "hvd.h"
#include "hvd/error.hpp"

namespace hvd {
inline namespace v1 {

// An operation under way. Movable; one thread at a time. get() may be called once.
template <typename Result>
class [[nodiscard]] Future {
 public:
  using Collect = Result (*)(hvd_work*);  // makes the result out of the work that is done

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

  // False once get() has been called, or after a move from here.
  bool valid() const { return work_ != nullptr; }

  // Done, well or badly.
  bool ready() const { return hvd_work_poll(work()) != 0; }

  // Waits until it is done; throws what went wrong.
  void wait() const { detail::check(hvd_work_wait(work(), -1)); }

  // The same for a limited time; false: not done yet.
  bool wait_for(std::chrono::microseconds limit) const {
    const hvd_status status = hvd_work_wait(work(), limit.count() > 0 ? limit.count() : 0);
    if (status == HVD_TIMEOUT && hvd_work_poll(work()) == 0) return false;
    detail::check(status);
    return true;
  }

  // Waits, and hands the result over.
  Result get() {
    const Future done = std::move(*this);  // gives the work back, whatever happens
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
