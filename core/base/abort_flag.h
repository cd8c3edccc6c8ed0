// A flag that ends the job, with the reason: one per Runtime, raised once, polled by every wait of the data plane.
//
// Any thread may raise it (on a lost connection, a protocol violation, a peer's notice). Every blocking wait below the
// engine checks it at least every kAbortPollInterval, so that a lost peer ends a collective in progress.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/mutex.h"

namespace hvd {

// The longest time until a blocked wait notices a raised flag.
inline constexpr Duration kAbortPollInterval = std::chrono::milliseconds(50);

class AbortFlag {
 public:
  // The first reason wins; returns whether this call was the first. `notify` receives the reason before the flag
  // becomes visible, so that the other ranks are informed even if this process ends as a result. `notify` should not
  // block; its exceptions are discarded. Any thread.
  using Notify = std::function<void(const Status& reason)>;
  bool raise(Status reason, const Notify& notify = {}) {
    const MutexLock lock(mutex_);
    if (raised_.load(std::memory_order_relaxed)) return false;
    reason_ = std::move(reason);
    try {
      if (notify) notify(reason_);
    } catch (...) {  // other ranks may not learn of it, but here the job is over
    }
    raised_.store(true, std::memory_order_release);
    for (const auto& [id, listener] : listeners_) listener();
    return true;
  }

  // Calls `listener` when the flag is raised, on the raising thread, or at once if it is raised already; never after
  // remove_listener() has returned. Listeners only wake threads. Any thread.
  using ListenerId = std::uint64_t;
  ListenerId add_listener(std::function<void()> listener) {
    const MutexLock lock(mutex_);
    if (raised()) listener();
    listeners_.emplace(++next_listener_, std::move(listener));
    return next_listener_;
  }
  void remove_listener(ListenerId id) {
    const MutexLock lock(mutex_);
    listeners_.erase(id);
  }

  bool raised() const { return raised_.load(std::memory_order_acquire); }

  // The reason, or an ok Status while the flag is not raised. Any thread.
  Status reason() const {
    const MutexLock lock(mutex_);
    return reason_;
  }

  // Throws the reason as an Error if raised.
  void check() const {
    if (raised()) throw Error(reason());
  }

 private:
  std::atomic<bool> raised_{false};
  mutable Mutex mutex_;  // held while `notify` and listeners are called
  Status reason_ GUARDED_BY(mutex_);
  ListenerId next_listener_ GUARDED_BY(mutex_) = 0;
  std::map<ListenerId, std::function<void()>> listeners_ GUARDED_BY(mutex_);
};

}  // namespace hvd
