// A queue from other threads to the event loop's thread: they put() items, the descriptor becomes readable, and the
// loop take()s them.
#pragma once

#include <sys/eventfd.h>

#include <cerrno>
#include <mutex>
#include <system_error>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/net/socket.h"

namespace hvd::launcher {

template <typename Item>
class Inbox {
 public:
  Inbox() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    if (!fd_) throw Internal("eventfd: " + error_text(errno));
  }

  // Readable while there are items to take; the loop watches it.
  int fd() const { return fd_.get(); }

  // Any thread.
  void put(Item item) {
    {
      const std::lock_guard lock(mutex_);
      items_.push_back(std::move(item));
      if (items_.size() > 1) return;  // the loop has been woken for the first
    }
    wake();
  }

  // Makes the descriptor readable even if there is nothing to take. Any thread.
  void wake() { eventfd_write(fd_.get(), 1); }

  // Returns all items, in order. The loop's thread.
  std::vector<Item> take() {
    eventfd_t count = 0;
    eventfd_read(fd_.get(), &count);
    const std::lock_guard lock(mutex_);
    return std::exchange(items_, {});
  }

 private:
  const FileDescriptor fd_;
  std::mutex mutex_;
  std::vector<Item> items_;
};

}  // namespace hvd::launcher
