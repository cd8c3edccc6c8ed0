// Where framework threads leave submissions and the engine thread collects them. The engine is woken by the caller.
#pragma once

#include <mutex>
#include <utility>
#include <vector>

#include "core/submission/submission.h"

namespace hvd {

class SubmissionQueue {
 public:
  // Any thread. False if the queue was closed; the submission is then untouched.
  bool push(Submission& submission) {
    std::lock_guard lock(mutex_);
    if (closed_) return false;
    queue_.push_back(std::move(submission));
    return true;
  }

  // Engine thread: everything since the last call, in order of pushing.
  std::vector<Submission> take() {
    std::lock_guard lock(mutex_);
    return std::exchange(queue_, {});
  }

  // Engine thread: nothing is accepted any more; returns what nobody had taken.
  std::vector<Submission> close() {
    std::lock_guard lock(mutex_);
    closed_ = true;
    return std::exchange(queue_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<Submission> queue_;  // guarded by mutex_
  bool closed_ = false;            // guarded by mutex_
};

}  // namespace hvd
