// The operations of a process set by name: those in flight, and earlier ones that can be submitted again. Any thread.
//
// A name is taken from submit until the operation has ended, whether or not its caller has waited: programs start
// operations that they never wait for, and reuse the names.
//
// Also generates names for operations without one: a counter, the same on every rank if all ranks submit the same
// operations; otherwise two different operations get one number and are distinguished by the coordinator's check. Ranks
// that join early have counted less far, so numbering restarts when a join has ended; after one that was given up,
// which ends for each rank at another time, with a suffix. Synchronous operations are not counted, so that a loop of
// them has one name, which is in the response cache after the first.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/operation/describe.h"
#include "core/operation/direct_call.h"
#include "core/operation/made_up_names.h"
#include "core/operation/submission_index.h"

namespace hvd {

// The name of a join: a set has one at a time, and ranks that join early have counted fewer operations. No other name
// can be taken while it is in flight.
inline constexpr const char* kJoinName = "<join>";

class NamedSubmissions {
 public:
  // A submission that begins, with its two references.
  struct Taken {
    explicit Taken(Submission& submission) : callers(&submission), engines(&submission) { submission.begin(); }

    CallersSubmission callers;
    EnginesSubmission engines;
  };

  explicit NamedSubmissions(std::shared_ptr<Metrics> metrics) : metrics_(std::move(metrics)) {}
  ~NamedSubmissions() {
    index_.for_each([](Submission& submission) { submission.forget(); });
  }
  NamedSubmissions(const NamedSubmissions&) = delete;
  NamedSubmissions& operator=(const NamedSubmissions&) = delete;

  // Takes the request's name; generates one if it is empty. The caller fills in the tensors. Throws InvalidArgument if
  // the name is taken, or while the set's join is in flight.
  Taken take(Request request) {
    std::lock_guard lock(mutex_);
    if (joining()) {
      throw InvalidArgument("this rank has joined: wait for the join to end before anything else is submitted");
    }
    const bool made_up = request.name.empty();
    if (made_up) {
      request.name = counted_name(++unnamed_, failed_joins_);
      ++changes_;
    }
    const std::size_t hash = hash_of(request.name);
    Submission* const known = index_.find(hash, request.name);
    if (known != nullptr && known->name_taken()) {
      throw InvalidArgument("'" + request.name +
                            "' is already in flight: wait for it before the name is used again, or give another name");
    }
    Submission& submission = known != nullptr && !known->in_use() ? *known : replace(known, hash);
    submission.request = std::move(request);
    submission.described = describe(submission.request);
    submission.scheduled_in = 0;
    submission.used_lately = !made_up;  // generated names seldom repeat
    if (submission.request.collective == Collective::join) join_ = &submission;
    return Taken(submission);
  }

  // Takes the name for the same operation as the last time, which was checked then; only the tensor's addresses may
  // differ. Nothing if the operation differs, or take() would throw.
  std::optional<Taken> take_again(const DirectCall& direct) {
    if (direct.name.empty()) return std::nullopt;
    const std::size_t hash = hash_of(direct.name);
    std::lock_guard lock(mutex_);
    Submission* const known = index_.find(hash, direct.name);
    const bool same = known != nullptr && !known->in_use() && !joining() && direct.asks_for(known->request) &&
                      known->tensors.size() == 1;  // unless memory ran out when it was taken
    if (!same) return std::nullopt;
    known->used_lately = true;
    known->tensors.front() = {.input = const_cast<void*>(direct.input), .output = direct.output};
    return std::optional<Taken>(std::in_place, *known);
  }

  // Whether any name is taken.
  bool any() const {
    std::lock_guard lock(mutex_);
    bool any = false;
    index_.for_each([&any](const Submission& submission) { any = any || submission.name_taken(); });
    return any;
  }

  bool is_taken(const std::string& name) const {
    std::lock_guard lock(mutex_);
    const Submission* const known = index_.find(hash_of(name), name);
    return known != nullptr && known->name_taken();
  }

  // The name of a synchronous operation without one. If it is taken, by another thread or by an operation that no
  // thread waits for any more, the operation must be counted like the rest.
  std::string name_of_synchronous() const {
    std::lock_guard lock(mutex_);
    return waited_name(unnamed_, failed_joins_);
  }

  // As long as this is unchanged, name_of_synchronous() is.
  std::uint64_t changes_of_numbers() const { return changes_.load(std::memory_order_relaxed); }

  // Called when this rank's join has ended, before any caller learns of it. `succeeded`: at the same point of the
  // common order of operations on all ranks; else each rank calls it as often as joins were given up, at any time.
  void join_ended(bool succeeded) {
    std::lock_guard lock(mutex_);
    if (!succeeded) ++failed_joins_;
    unnamed_ = 0;
    ++changes_;
  }

 private:
  // A program may never reuse a name. After so many new names, or half as many as exist, those are deleted that were
  // not used since the last such cleanup.
  static constexpr std::size_t kNewNames = 1024;

  bool joining() const { return join_ != nullptr && join_->name_taken(); }

  // Creates a submission, in place of `former`, if any, which is still referenced.
  Submission& replace(Submission* former, std::size_t hash) {
    if (former != nullptr) forget(*former);
    if (index_.size() >= limit_) forget_idle();
    auto made = std::make_unique<Submission>(metrics_);
    made->hash = hash;
    index_.insert(*made);
    return *made.release();
  }

  void forget(Submission& submission) {
    if (join_ == &submission) join_ = nullptr;
    index_.remove(submission);
    submission.forget();
  }

  void forget_idle() {
    index_.for_each([this](Submission& submission) {
      if (!std::exchange(submission.used_lately, false) && !submission.in_use()) forget(submission);
    });
    limit_ = index_.size() + std::max(kNewNames, index_.size() / 2);
  }

  const std::shared_ptr<Metrics> metrics_;
  mutable std::mutex mutex_;
  SubmissionIndex<&Submission::next_named> index_;  // guarded by mutex_, like all but changes_
  std::size_t limit_ = kNewNames;
  Submission* join_ = nullptr;  // the set's last join, if it is in the index
  std::uint64_t unnamed_ = 0;
  std::uint64_t failed_joins_ = 0;
  std::atomic<std::uint64_t> changes_{0};  // of unnamed_
};

}  // namespace hvd
