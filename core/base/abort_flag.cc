#include "core/base/abort_flag.h"

#include "core/base/error.h"

namespace hvd {

bool AbortFlag::raise(Status reason) {
  std::lock_guard lock(mutex_);
  if (raised_.load(std::memory_order_relaxed)) return false;
  reason_ = std::move(reason);
  raised_.store(true, std::memory_order_release);
  return true;
}

Status AbortFlag::reason() const {
  std::lock_guard lock(mutex_);
  return reason_;
}

void AbortFlag::check() const {
  if (raised()) throw Error(reason());
}

}  // namespace hvd
