// Submissions that wait for the other ranks, by process set and name. Engine thread only. Counts those that end, and
// the time in which there are any.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/base/metrics.h"
#include "core/submission/operation_key.h"
#include "core/submission/submission.h"

namespace hvd {

class PendingTable {
 public:
  explicit PendingTable(Metrics& metrics) : metrics_(metrics) {}

  // The caller has made sure that the name is free.
  Submission& insert(Submission submission) {
    auto owned = std::make_unique<Submission>(std::move(submission));
    Submission& reference = *owned;
    if (table_.empty()) busy_since_ = Clock::now();
    table_.insert_or_assign(OperationKey(reference.request), std::move(owned));
    return reference;
  }

  // Null if this rank has not submitted it.
  Submission* find(std::int32_t process_set, const std::string& name) const {
    auto it = table_.find(OperationKeyView{process_set, name});
    return it == table_.end() ? nullptr : it->second.get();
  }

  // Takes it out of the table, before its work is completed, so that the name is free when the caller hears of it.
  std::unique_ptr<Submission> remove(std::int32_t process_set, const std::string& name) {
    auto it = table_.find(OperationKeyView{process_set, name});
    if (it == table_.end()) return nullptr;
    auto owned = std::move(it->second);
    table_.erase(it);
    note_ended(1);
    return owned;
  }

  std::vector<std::unique_ptr<Submission>> remove_all() {
    std::vector<std::unique_ptr<Submission>> all;
    for (auto& [key, submission] : table_) all.push_back(std::move(submission));
    table_.clear();
    note_ended(all.size());
    return all;
  }

  bool empty() const { return table_.empty(); }

  // visit(submission) for each, in no order.
  template <typename Visit>
  void for_each(const Visit& visit) const {
    for (const auto& [key, submission] : table_) visit(*submission);
  }

 private:
  void note_ended(std::size_t count) {
    metrics_.operations.add(count);
    if (count > 0 && table_.empty()) metrics_.communication_time.add(Clock::now() - busy_since_);
  }

  Metrics& metrics_;
  TimePoint busy_since_;  // if there are any
  OperationMap<std::unique_ptr<Submission>> table_;
};

}  // namespace hvd
