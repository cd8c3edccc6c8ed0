// The submissions of a process set that wait for other ranks, by name. Engine thread only. Counts those that end, and
// the time during which there are any.
#pragma once

#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/metrics.h"
#include "core/operation/submission_index.h"

namespace hvd {

class PendingTable {
 public:
  explicit PendingTable(Metrics& metrics) : metrics_(metrics) {}
  ~PendingTable() { remove_all(); }
  PendingTable(const PendingTable&) = delete;
  PendingTable& operator=(const PendingTable&) = delete;

  // The caller has made sure that the name is free.
  Submission& insert(EnginesSubmission submission) {
    if (empty()) busy_since_ = Clock::now();
    index_.insert(*submission);
    return *submission.release();
  }

  // Null if this rank has not submitted it.
  Submission* find(const std::string& name) const { return index_.find(hash_of(name), name); }

  // Removes it before its work is completed, so that the name is free when the caller is notified.
  EnginesSubmission remove(Submission& submission) {
    index_.remove(submission);
    metrics_.operations.add();
    if (empty()) metrics_.communication_time.add(Clock::now() - busy_since_);
    return EnginesSubmission(&submission);
  }

  std::vector<EnginesSubmission> remove_all() {
    std::vector<EnginesSubmission> all;
    for_each([&](Submission& submission) { all.push_back(remove(submission)); });
    return all;
  }

  bool empty() const { return index_.size() == 0; }

  // visit(submission) for each, in no order.
  template <typename Visit>
  void for_each(const Visit& visit) const {
    index_.for_each(visit);
  }

 private:
  Metrics& metrics_;
  TimePoint busy_since_;  // valid if not empty
  SubmissionIndex<&Submission::next_pending> index_;
};

}  // namespace hvd
