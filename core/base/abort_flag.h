// "The job is over, and why": one per Runtime, raised once, polled by every wait of the data plane.
//
// Raised by any thread (a lost connection, a protocol violation, a peer's notice). Every blocking wait below the
// engine checks it at least every kAbortPollInterval, so that a lost peer ends a collective that is under way.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>

#include "core/base/clock.h"
#include "core/base/status.h"

namespace hvd {

// Longest time that a blocked wait may take to notice a raised flag.
inline constexpr Duration kAbortPollInterval = std::chrono::milliseconds(50);

class AbortFlag {
 public:
  // The first reason wins; returns whether this call was the first. `tell` gets the reason before anybody can see the
  // flag: what then ends this process does not keep it from the other ranks. It should not block; what it throws is
  // lost. Any thread.
  using Tell = std::function<void(const Status& reason)>;
  bool raise(Status reason, const Tell& tell = {});

  // Has `listener` called when the flag is raised, by whoever raises it, or at once if it is raised already; not after
  // remove_listener() has returned. Listeners only wake somebody. Any thread.
  using ListenerId = std::uint64_t;
  ListenerId add_listener(std::function<void()> listener);
  void remove_listener(ListenerId id);

  bool raised() const { return raised_.load(std::memory_order_acquire); }

  // The reason, or an ok Status while nothing was raised. Any thread.
  Status reason() const;

  // Throws the reason as an Error if raised.
  void check() const;

 private:
  std::atomic<bool> raised_{false};
  mutable std::mutex mutex_;
  Status reason_;  // guarded by mutex_
  ListenerId next_listener_ = 0;
  std::map<ListenerId, std::function<void()>> listeners_;  // guarded by mutex_, also while they are called
};

}  // namespace hvd
