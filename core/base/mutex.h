// Mutexes and condition variables that clang's thread-safety analysis checks at compile time. The product's only use of
// std::mutex and std::condition_variable; every call is one of theirs, at no cost.
//
// A member that a lock protects is declared with GUARDED_BY(mutex_), a private function that expects the lock to be
// held with REQUIRES(mutex_), one that must not be called with it EXCLUDES(mutex_). Where a thread holds two locks, the
// inner one is declared ACQUIRED_AFTER(outer_). The analysis looks at a lambda by itself: one that runs under the lock
// says so as a function does, [this]() REQUIRES(mutex_) { ... }.
#pragma once

#include <condition_variable>
#include <mutex>

#include "core/base/clock.h"

#if defined(__clang__)
#define HVD_ANNOTATION(x) __attribute__((x))
#else
#define HVD_ANNOTATION(x)
#endif

#define CAPABILITY(name) HVD_ANNOTATION(capability(name))
#define SCOPED_CAPABILITY HVD_ANNOTATION(scoped_lockable)
#define ACQUIRE(...) HVD_ANNOTATION(acquire_capability(__VA_ARGS__))
#define TRY_ACQUIRE(...) HVD_ANNOTATION(try_acquire_capability(__VA_ARGS__))
#define RELEASE(...) HVD_ANNOTATION(release_capability(__VA_ARGS__))
#define REQUIRES(...) HVD_ANNOTATION(requires_capability(__VA_ARGS__))
#define EXCLUDES(...) HVD_ANNOTATION(locks_excluded(__VA_ARGS__))
// Older versions of Abseil, which gRPC's headers include, define these with the same meaning.
#ifndef GUARDED_BY
#define GUARDED_BY(x) HVD_ANNOTATION(guarded_by(x))
#define ACQUIRED_AFTER(...) HVD_ANNOTATION(acquired_after(__VA_ARGS__))
#define NO_THREAD_SAFETY_ANALYSIS HVD_ANNOTATION(no_thread_safety_analysis)
#endif

namespace hvd {

class CAPABILITY("mutex") Mutex {
 public:
  void lock() ACQUIRE() { mutex_.lock(); }
  bool try_lock() TRY_ACQUIRE(true) { return mutex_.try_lock(); }
  void unlock() RELEASE() { mutex_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mutex_;
};

// Holds a mutex for a scope, or until unlock().
class SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(Mutex& mutex) ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  // The caller has locked it: if (!mutex.try_lock()) return; MutexLock lock(mutex, std::adopt_lock);
  MutexLock(Mutex& mutex, std::adopt_lock_t) REQUIRES(mutex) : mutex_(mutex) {}
  ~MutexLock() RELEASE() {
    if (held_) mutex_.unlock();
  }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

  void unlock() RELEASE() {
    held_ = false;
    mutex_.unlock();
  }

 private:
  Mutex& mutex_;
  bool held_ = true;
};

class CondVar {
 public:
  // Releases the mutex until a notification after which done(), called with the mutex held, is true, or until the
  // deadline; returns the last done(), which must not throw.
  template <typename Predicate>
  bool wait_until(Mutex& mutex, Deadline deadline, Predicate done) REQUIRES(mutex) NO_THREAD_SAFETY_ANALYSIS {
    std::unique_lock lock(mutex.mutex_, std::adopt_lock);
    const bool is_done = changed_.wait_until(lock, deadline, done);
    lock.release();  // the caller holds it
    return is_done;
  }

  void notify_one() { changed_.notify_one(); }
  void notify_all() { changed_.notify_all(); }

 private:
  std::condition_variable changed_;
};

}  // namespace hvd
