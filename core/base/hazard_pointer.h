// HazardPointers: for each thread, the object that it uses at the moment, so that whoever destroys an object can wait
// until no thread uses it. A use costs two stores, where a reference count takes two atomic read-modify-writes.
//
// M. M. Michael, Hazard Pointers: Safe Memory Reclamation for Lock-Free Objects, IEEE TPDS 15(6), 2004. The barrier
// that each use needs is executed on demand by the thread that destroys, where the kernel can do that: membarrier(2).
#pragma once

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/base/mutex.h"
#include "core/base/process.h"

namespace hvd {

class HazardPointers {
 public:
  // Of one thread at a time.
  class alignas(64) Pointer {
   public:
    explicit Pointer(const std::atomic<bool>& has_barrier) : has_barrier_(has_barrier) {}

    // Publishes `object`, which must not be accessed before a check that it is still the current one. Returns what to
    // restore() at the end: uses may be nested.
    const void* exchange(const void* object) {
      const void* const before = object_.load(std::memory_order_relaxed);
      object_.store(object, std::memory_order_relaxed);
      if (has_barrier_.load(std::memory_order_relaxed)) {
        std::atomic_signal_fence(std::memory_order_seq_cst);
      } else {
        std::atomic_thread_fence(std::memory_order_seq_cst);
      }
      return before;
    }
    void restore(const void* before) { object_.store(before, std::memory_order_release); }

   private:
    friend class HazardPointers;

    std::atomic<const void*> object_{nullptr};
    const std::atomic<bool>& has_barrier_;
    std::atomic<bool> taken_{false};
  };

  ~HazardPointers() NO_THREAD_SAFETY_ANALYSIS {
    if (registering_.joinable()) registering_.join();
  }

  // Any thread, as the following functions.
  Pointer& take() {
    const MutexLock lock(mutex_);
    if (pointers_.empty()) {
      registering_ = start_thread("hvd-barrier", [this] {
        has_barrier_ = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0) == 0;
      });
    }
    const auto free = std::ranges::find_if(pointers_, [](const Pointer& pointer) { return !pointer.taken_; });
    Pointer& pointer = free != pointers_.end() ? *free : pointers_.emplace_back(has_barrier_);
    pointer.taken_ = true;
    return pointer;
  }
  // Takes no lock: a thread may end in a forked child, where the lock may be held for ever.
  static void give_back(Pointer& pointer) { pointer.taken_.store(false, std::memory_order_release); }

  // Takes over the last reference to an object that is no longer the current one, and drops it as soon as no thread
  // uses the object. Waits for that until the deadline; what is used for longer is destroyed by a later call.
  void retire(std::shared_ptr<const void> object, Deadline deadline) {
    const auto is_unused = [this](const auto& one) { return one.use_count() == 1 && !uses(one.get()); };
    const MutexLock retiring(retiring_);
    retired_.push_back(std::move(object));
    while (true) {
      std::erase_if(retired_, is_unused);
      if (retired_.empty() || Clock::now() >= deadline) return;
      std::this_thread::sleep_for(kPollInterval);
    }
  }

 private:
  static constexpr Duration kPollInterval = std::chrono::microseconds(100);

  bool uses(const void* object) {
    const MutexLock lock(mutex_);
    if (registering_.joinable()) registering_.join();
    if (has_barrier_) syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0);
    std::atomic_thread_fence(std::memory_order_seq_cst);
    return std::ranges::any_of(
        pointers_, [&](const Pointer& pointer) { return pointer.object_.load(std::memory_order_acquire) == object; });
  }

  // Whether the kernel executes a barrier on all threads of the process on demand (Linux 4.14, unless filtered). It
  // takes up to 20 ms to prepare that in a process of several threads; until then each use executes the barrier itself.
  std::atomic<bool> has_barrier_{false};
  Mutex retiring_;  // held throughout retire()
  std::vector<std::shared_ptr<const void>> retired_ GUARDED_BY(retiring_);
  Mutex mutex_ ACQUIRED_AFTER(retiring_);
  std::deque<Pointer> pointers_ GUARDED_BY(mutex_);
  std::thread registering_ GUARDED_BY(mutex_);  // started by the first take()
};

// What a thread remembers of an object that its owner replaces now and then, counting the changes.
template <typename T>
struct CachedObject {
  T* object = nullptr;
  std::uint64_t changes = 0;                   // when it was the current one
  HazardPointers::Pointer* pointer = nullptr;  // the thread's
};

// An object that this thread uses, and that is not destroyed before this ends.
template <typename T>
class InUse {
 public:
  InUse() = default;
  InUse(InUse&& other) noexcept
      : object_(other.object_), pointer_(std::exchange(other.pointer_, nullptr)), before_(other.before_) {}
  ~InUse() {
    if (pointer_ != nullptr) pointer_->restore(before_);
  }

  // False if it is not the current object any more. Until it succeeds it may be called again.
  bool take(const CachedObject<T>& cached, const std::atomic<std::uint64_t>& changes) {
    if (cached.pointer == nullptr) return false;
    before_ = cached.pointer->exchange(cached.object);
    if (cached.changes != changes.load(std::memory_order_acquire)) {
      cached.pointer->restore(before_);
      return false;
    }
    object_ = cached.object;
    pointer_ = cached.pointer;
    return true;
  }

  T& operator*() const { return *object_; }
  T* operator->() const { return object_; }

 private:
  T* object_ = nullptr;
  HazardPointers::Pointer* pointer_ = nullptr;
  const void* before_ = nullptr;
};

}  // namespace hvd
