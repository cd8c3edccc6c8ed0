// The operations of a process set between submission and end: queued by the threads that submit them, then pending with
// the engine until all ranks are ready.
#pragma once

#include <atomic>
#include <string>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/base/metrics.h"
#include "core/base/mutex.h"
#include "core/operation/operation.h"

namespace hvd {

// A queue from the threads that submit to the one that drives the engine. Callers of push() wake the engine.
class OperationQueue {
 public:
  // Any thread. Returns the new size; 0 if the queue is closed: the operation is then unchanged.
  std::size_t push(EngineReference& operation) {
    const MutexLock lock(mutex_);
    if (closed_) return 0;
    queue_.push_back(std::move(operation));
    empty_.store(false, std::memory_order_release);
    return queue_.size();
  }

  std::size_t size() const {
    const MutexLock lock(mutex_);
    return queue_.size();
  }

  // Driving thread: replaces `taken` by everything pushed since the last call, in order.
  void take(std::vector<EngineReference>& taken) {
    taken.clear();
    if (empty()) return;
    const MutexLock lock(mutex_);
    empty_.store(true, std::memory_order_relaxed);
    queue_.swap(taken);
  }

  bool empty() const { return empty_.load(std::memory_order_acquire); }

  // Driving thread: refuses what comes later, and returns what was not taken.
  std::vector<EngineReference> close() {
    const MutexLock lock(mutex_);
    closed_ = true;
    return std::exchange(queue_, {});
  }

 private:
  mutable Mutex mutex_;
  std::vector<EngineReference> queue_ GUARDED_BY(mutex_);
  bool closed_ GUARDED_BY(mutex_) = false;
  std::atomic<bool> empty_{true};  // changed with mutex_ held
};

// The operations that wait for other ranks, by name. Driving thread only. Counts those that end, and the time during
// which there are any.
class PendingOperations {
 public:
  explicit PendingOperations(Metrics& metrics) : metrics_(metrics) {}
  ~PendingOperations() { remove_all(); }
  PendingOperations(const PendingOperations&) = delete;
  PendingOperations& operator=(const PendingOperations&) = delete;

  // The caller has made sure that the name is free.
  Operation& insert(EngineReference operation) {
    if (empty()) busy_since_ = Clock::now();
    index_.insert(*operation);
    return *operation.release();
  }

  // Null if this rank has not submitted it.
  Operation* find(const std::string& name) const { return index_.find(hash_of(name), name); }

  // The same, for a bucket that the ranks have agreed on. Null for another bucket of the same name: whatever the
  // coordinator sends, an operation is performed once.
  Operation* claim(const std::string& name) const {
    Operation* const found = find(name);
    return found == nullptr || std::exchange(found->agreed, true) ? nullptr : found;
  }

  // Removes it before it is completed, so that the name is free when the caller is notified.
  EngineReference remove(Operation& operation) {
    index_.remove(operation);
    metrics_.operations.add();
    if (empty()) metrics_.communication_time.add(Clock::now() - busy_since_);
    return EngineReference(&operation);
  }

  // Removes it and completes it.
  void end(Operation& operation, const Status& status) {
    const EngineReference ended = remove(operation);
    if (ended->end(status)) ended->completion.wake();
  }

  std::vector<EngineReference> remove_all() {
    std::vector<EngineReference> all;
    for_each([&](Operation& operation) { all.push_back(remove(operation)); });
    return all;
  }

  bool empty() const { return index_.size() == 0; }

  // visit(operation) for each, in no order.
  template <typename Visit>
  void for_each(const Visit& visit) const {
    index_.for_each(visit);
  }

 private:
  Metrics& metrics_;
  TimePoint busy_since_;  // valid if not empty
  OperationIndex<&Operation::next_pending> index_;
};

}  // namespace hvd
