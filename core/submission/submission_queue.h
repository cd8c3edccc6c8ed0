// Where framework threads leave submissions and the engine thread collects them. The engine is woken by the caller.
#pragma once

#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

#include "core/submission/submission.h"

namespace hvd {

class SubmissionQueue {
 public:
  // Any thread. How many there are now; 0 if the queue was closed: the submission is then untouched.
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

  // Engine thread: everything since the last call, in order of pushing, instead of what is in `taken`.
  void take(std::vector<EnginesSubmission>& taken) {
    taken.clear();
    if (empty()) return;
    std::lock_guard lock(mutex_);
    empty_.store(true, std::memory_order_relaxed);
    queue_.swap(taken);
  }

  bool empty() const { return empty_.load(std::memory_order_acquire); }

  // Engine thread: nothing is accepted any more; returns what nobody had taken.
  std::vector<EnginesSubmission> close() {
    std::lock_guard lock(mutex_);
    closed_ = true;
    return std::exchange(queue_, {});
  }

 private:
  mutable std::mutex mutex_;
  std::vector<EnginesSubmission> queue_;  // guarded by mutex_
  bool closed_ = false;                   // guarded by mutex_
  std::atomic<bool> empty_{true};         // changed with mutex_
};

}  // namespace hvd
