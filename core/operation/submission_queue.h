// The queue of submissions from framework threads to the engine thread. Callers of push() wake the engine.
#pragma once

#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

#include "core/operation/submission.h"

namespace hvd {

class SubmissionQueue {
 public:
  // Any thread. Returns the new size; 0 if the queue is closed: the submission is then unchanged.
  std::size_t push(EnginesSubmission& submission) {
    std::lock_guard lock(mutex_);
    if (closed_) return 0;
    queue_.push_back(std::move(submission));
    empty_.store(false, std::memory_order_release);
    return queue_.size();
  }

  std::size_t size() const {
    std::lock_guard lock(mutex_);
    return queue_.size();
  }

  // Engine thread: replaces `taken` by everything pushed since the last call, in order.
  void take(std::vector<EnginesSubmission>& taken) {
    taken.clear();
    if (empty()) return;
    std::lock_guard lock(mutex_);
    empty_.store(true, std::memory_order_relaxed);
    queue_.swap(taken);
  }

  bool empty() const { return empty_.load(std::memory_order_acquire); }

  // Engine thread: accepts nothing any more; returns what was not taken.
  std::vector<EnginesSubmission> close() {
    std::lock_guard lock(mutex_);
    closed_ = true;
    return std::exchange(queue_, {});
  }

 private:
  mutable std::mutex mutex_;
  std::vector<EnginesSubmission> queue_;  // guarded by mutex_
  bool closed_ = false;                   // guarded by mutex_
  std::atomic<bool> empty_{true};         // changed with mutex_ held
};

}  // namespace hvd
