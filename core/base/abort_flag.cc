#include "core/base/abort_flag.h"

#include "core/base/error.h"

namespace hvd {

bool AbortFlag::raise(Status reason, const Tell& tell) {
  const MutexLock lock(mutex_);
  if (raised_.load(std::memory_order_relaxed)) return false;
  reason_ = std::move(reason);
  try {
    if (tell) tell(reason_);
  } catch (...) {  // other ranks may not learn of it, but here the job is over
  }
  raised_.store(true, std::memory_order_release);
  for (const auto& [id, listener] : listeners_) listener();
  return true;
}

AbortFlag::ListenerId AbortFlag::add_listener(std::function<void()> listener) {
  const MutexLock lock(mutex_);
  if (raised()) listener();
  listeners_.emplace(++next_listener_, std::move(listener));
  return next_listener_;
}

void AbortFlag::remove_listener(ListenerId id) {
  const MutexLock lock(mutex_);
  listeners_.erase(id);
}

Status AbortFlag::reason() const {
  const MutexLock lock(mutex_);
  return reason_;
}

void AbortFlag::check() const {
  if (raised()) throw Error(reason());
}

}  // namespace hvd
