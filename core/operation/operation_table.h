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
#include <optional>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/base/mutex.h"
#include "core/operation/call.h"
#include "core/operation/operation.h"

namespace hvd {

class OperationTable {
 public:
  explicit OperationTable(std::shared_ptr<Metrics> metrics) : metrics_(std::move(metrics)) {}
  ~OperationTable() {
    index_.for_each([](Operation& operation) { operation.forget(); });
  }
  OperationTable(const OperationTable&) = delete;
  OperationTable& operator=(const OperationTable&) = delete;

  // Takes the spec's name; generates one if it is empty. Throws InvalidArgument if the name is taken, or while the
  // set's join is in flight.
  OperationReferences take(OperationSpec spec, OperationMemory memory) {
    const MutexLock lock(mutex_);
    if (joining()) throw_joining();
    const bool is_unnamed = spec.name.empty();
    if (is_unnamed) {
      spec.name = sequential_name(++unnamed_, failed_joins_);
      ++changes_;
    }
    const std::size_t hash = hash_of(spec.name);
    Operation* const known = index_.find(hash, spec.name);
    if (known != nullptr && known->name_taken()) throw_taken(spec.name);
    Operation& operation = known != nullptr && !known->in_use() ? *known : replace(known, hash);
    operation.set_call(std::move(spec), std::move(memory));
    operation.used_lately = !is_unnamed;  // generated names seldom repeat
    if (operation.spec.collective == Collective::join) join_ = &operation;
    return OperationReferences(operation);
  }

  // Takes the name for the same operation as the last time, which was checked then; only the tensor's addresses may
  // differ. Nothing if the operation differs, or take() would throw.
  std::optional<OperationReferences> take_again(const Call& call) {
    if (call.name.empty()) return std::nullopt;
    const std::size_t hash = hash_of(call.name);
    const MutexLock lock(mutex_);
    Operation* const known = index_.find(hash, call.name);
    if (known == nullptr || !known->repeatable || known->in_use() || joining()) return std::nullopt;
    if (!call.repeats(known->spec)) return std::nullopt;
    known->used_lately = true;
    known->memory.tensors.front() = {.input = call.inputs.front().data, .output = call.outputs.front().data};
    return std::optional<OperationReferences>(std::in_place, *known);
  }

  // An operation that its caller starts again and again. An empty name is numbered: ranks prepare unnamed operations in
  // the same order. The name is taken from start to end only.
  CallerReference prepare(OperationSpec spec, OperationMemory memory, Operation::Prepared prepared) {
    const MutexLock lock(mutex_);
    if (spec.name.empty()) spec.name = prepared_name(++unnamed_prepared_);
    auto* const operation = new Operation(metrics_);
    operation->hash = hash_of(spec.name);
    operation->set_call(std::move(spec), std::move(memory));
    operation->prepare(std::move(prepared));
    return CallerReference(operation);
  }

  // Takes the name of a prepared operation again, which the engine must have released. Throws as take().
  EngineReference take_prepared(Operation& operation) {
    const MutexLock lock(mutex_);
    if (joining()) throw_joining();
    Operation* const known = operation.kept() ? &operation : index_.find(operation.hash, operation.spec.name);
    if (known != nullptr && known->name_taken()) throw_taken(operation.spec.name);
    if (known != &operation) {  // it is started for the first time, or another one has had the name since
      if (known != nullptr) forget(*known);
      index_.insert(operation);
      operation.keep();
    }
    if (operation.engine_holds()) throw_taken(operation.spec.name);
    operation.mark_resubmitted();
    return EngineReference(&operation);
  }

  // Whether any name is taken.
  bool any() const {
    const MutexLock lock(mutex_);
    bool any = false;
    index_.for_each([&any](const Operation& operation) { any = any || operation.name_taken(); });
    return any;
  }

  bool is_taken(const std::string& name) const {
    const MutexLock lock(mutex_);
    const Operation* const known = index_.find(hash_of(name), name);
    return known != nullptr && known->name_taken();
  }

  // The last so many operations without a name were not started: their numbers are the next ones again. No other
  // number may have been taken since.
  void take_back(std::uint64_t unnamed) {
    const MutexLock lock(mutex_);
    unnamed_ -= unnamed;
    ++changes_;
  }

  // The name of a synchronous operation without one. If it is taken, by an operation that no thread waits for any more,
  // the next one must not be submitted before that has ended: other ranks may be ahead.
  std::string next_synchronous_name() const {
    const MutexLock lock(mutex_);
    return synchronous_name(unnamed_, failed_joins_);
  }

  // As long as this is unchanged, next_synchronous_name() is.
  std::uint64_t changes_of_numbers() const { return changes_.load(std::memory_order_relaxed); }

  // Called when this rank's join has ended, before any caller learns of it. `succeeded`: at the same point of the
  // common order of operations on all ranks; else each rank calls it as often as joins were given up, at any time.
  void join_ended(bool succeeded) {
    const MutexLock lock(mutex_);
    if (!succeeded) ++failed_joins_;
    unnamed_ = 0;
    ++changes_;
  }

 private:
  // A program may never reuse a name. After so many new names, or half as many as exist, those are deleted that were
  // not used since the last such cleanup.
  static constexpr std::size_t kNewNames = 1024;

  [[noreturn]] static void throw_joining() {
    throw InvalidArgument("this rank has joined: wait for the join to end before anything else is submitted");
  }
  [[noreturn]] static void throw_taken(const std::string& name) {
    throw InvalidArgument("'" + name +
                          "' is already in flight: wait for it before the name is used again, or give another name");
  }

  bool joining() const REQUIRES(mutex_) { return join_ != nullptr && join_->name_taken(); }

  // Creates an operation, in place of `former`, if any, which is still referenced.
  Operation& replace(Operation* former, std::size_t hash) REQUIRES(mutex_) {
    if (former != nullptr) forget(*former);
    if (index_.size() >= limit_) forget_idle();
    auto made = std::make_unique<Operation>(metrics_);
    made->hash = hash;
    index_.insert(*made);
    return *made.release();
  }

  void forget(Operation& operation) REQUIRES(mutex_) {
    if (join_ == &operation) join_ = nullptr;
    index_.remove(operation);
    operation.forget();
  }

  void forget_idle() REQUIRES(mutex_) {
    index_.for_each([this](Operation& operation) NO_THREAD_SAFETY_ANALYSIS {
      if (!std::exchange(operation.used_lately, false) && !operation.in_use()) forget(operation);
    });
    limit_ = index_.size() + std::max(kNewNames, index_.size() / 2);
  }

  const std::shared_ptr<Metrics> metrics_;
  mutable Mutex mutex_;
  OperationIndex<&Operation::next_named> index_ GUARDED_BY(mutex_);
  std::size_t limit_ GUARDED_BY(mutex_) = kNewNames;
  Operation* join_ GUARDED_BY(mutex_) = nullptr;  // the set's last join, if it is in the index
  std::uint64_t unnamed_ GUARDED_BY(mutex_) = 0;
  std::uint64_t unnamed_prepared_ GUARDED_BY(mutex_) = 0;
  std::uint64_t failed_joins_ GUARDED_BY(mutex_) = 0;
  std::atomic<std::uint64_t> changes_{0};  // of unnamed_
};

}  // namespace hvd
