// One operation on this rank, from its submission to its end: what is to be done (the spec), the memory of its tensors,
// and its completion.
//
// Reference counted by the caller (CallerReference), the engine (EngineReference) and the OperationTable, which makes
// it and keeps it for the next operation of the same name, so that a repetition costs no allocation; the last one
// deletes it.
//
// A prepared operation is one whose caller keeps its reference, and starts it again and again: the spec, the check and
// the memory are those of the first time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/base/metrics.h"
#include "core/base/status.h"
#include "core/device/device_completion.h"
#include "core/device/device_runtime.h"
#include "core/flight/flight_recorder.h"
#include "core/operation/operation_spec.h"
#include "core/tensor/tensor.h"

namespace hvd {

struct TensorMemory {
  void* input = nullptr;
  void* output = nullptr;  // null: no output, or the runtime allocates it
  // Rows of the caller's output in an allgather or alltoall: how many are needed depends on the other ranks.
  std::int64_t output_rows = 0;
};

// Where an operation's tensors are. The caller's memory stays valid until the operation is done.
struct OperationMemory {
  std::vector<TensorMemory> tensors{};
  bool allocates_outputs = false;
  int device = kCpuDevice;                     // or the ordinal of this rank's accelerator that has the tensors
  std::shared_ptr<const DeviceEvent> ready{};  // on a device: when they may be accessed
  std::vector<OwnedTensor> outputs{};          // those that the runtime has allocated; readable once done

  // Whether an output of the caller had the wrong number of rows; the result is then in outputs.
  bool output_did_not_fit() const { return !allocates_outputs && !outputs.empty(); }
};

// The completion of an operation: whether it is done, its status and its results.
//
// Completed once, by the thread that drives the engine (for a message: the channel's); any thread may wait for it.
// Results may be read after done() has returned true; on a device done() means that the operation has been enqueued in
// a stream, and on_device reports its end.
class Completion {
 public:
  bool done() const { return state_.load(std::memory_order_acquire) == kDone; }

  // True once done; false at the deadline. Sleeps at once: the engine that it waits for may need this very core.
  bool wait(Deadline deadline);
  // Whether a thread has begun to wait. What that thread has submitted before is in the queue then. Any thread.
  bool awaited() const { return awaited_.load(std::memory_order_acquire); }
  void set_awaited() { awaited_.store(true, std::memory_order_release); }

  // Instead of waiting: calls `callback(context)` once when done, on the completing thread after its last change to
  // this object, or at once on this thread if it is done already. The callback must not block. At most one call.
  void call_when_done(void (*callback)(void*), void* context);

  // The outcome. Requires done().
  const Status& status() const { return status_; }

  // The same including work on a device. Any thread.
  bool over() const { return done() && (!on_device || on_device->done()); }
  bool wait_until_over(Deadline deadline) { return wait(deadline) && (!on_device || on_device->wait(deadline)); }
  Status outcome() const { return status_.ok() && on_device ? on_device->status() : status_; }

  // Completing thread, once, after the results below are in place. True if a thread sleeps or a callback is set, and
  // wake() must be called: so a thread that waits for many works is woken when all are done.
  [[nodiscard]] bool complete(const Status& status);
  void wake();

  // Resets to the initial state. No thread may be waiting.
  void reset();

  std::vector<std::int64_t> received_splits;    // alltoall: rows by source
  int last_joined = -1;                         // join
  int source = -1;                              // of a receive: the job rank that sent the message
  std::shared_ptr<DeviceCompletion> on_device;  // null: nothing is on a device

 private:
  static constexpr std::uint32_t kOpen = 0, kSleptOn = 1, kDone = 2, kToCall = 3;

  std::atomic<std::uint32_t> state_{kOpen};
  std::atomic<bool> awaited_{false};
  void (*callback_)(void*) = nullptr;  // set before state_ is kToCall
  void* callback_context_ = nullptr;
  bool is_to_call_ = false;  // owned by the completing thread, from complete() to wake()
  Status status_;
};

class Operation {
 public:
  enum class Holder { engine, caller };

  // `metrics` is shared because the runtime may be destroyed before the caller's reference.
  explicit Operation(std::shared_ptr<Metrics> metrics) : metrics_(std::move(metrics)) {}
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  // Set before submission, by set_call().
  OperationSpec spec;
  bool repeatable = false;  // is_repeatable(spec)
  OperationMemory memory;
  std::size_t hash = 0;  // of spec.name: once, by the OperationTable

  // For the flight recorder: the description of `spec`, and the record of this operation.
  FlightWords described{};
  FlightEntry flight;

  // Owned by OperationTable: taken since the last cleanup of idle names.
  bool used_lately = false;

  // Of a prepared operation: the communicator that it is of, and the stream of its tensors, whose work precedes each
  // start.
  struct Prepared {
    std::weak_ptr<const void> communicator;
    void* stream = nullptr;
  };
  std::optional<Prepared> prepared;

  // Owned by the thread that drives the engine.
  bool agreed = false;           // the ranks have agreed to perform it: a bucket refers to it
  std::size_t tensors_left = 0;  // tensors that no bucket has finished yet
  struct Scheduled {
    std::uint64_t lock_number = 0;  // the lock for which slot was looked up
    std::uint32_t slot = 0;         // cache slot of this spec in that lock
  };
  Scheduled scheduled;

  Completion completion;

  // For the caller. Any thread.
  bool poll() const { return completion.over(); }
  bool wait(Deadline deadline);
  // Waits only until the operation is enqueued in a device's stream, if it has one; the caller orders streams from then
  // on.
  bool wait_until_enqueued(Deadline deadline) { return completion.wait(deadline); }

  // What is to be done, and where, until the next call. Requires !in_use().
  void set_call(OperationSpec new_spec, OperationMemory new_memory);

  // From now on caller and engine hold a reference, and the name is taken. Requires !in_use(); submitters are
  // serialized.
  void mark_submitted() {
    begin();
    state_.store(State::kKept | State::kInUse | State::kEngineHolds | State::kCallerHolds | State::kNameTaken,
                 std::memory_order_relaxed);
  }

  // From now on its caller holds a reference, no table knows it, and it counts as done, until it is submitted again.
  void prepare(Prepared of) {
    prepared = std::move(of);
    state_.store(State::kInUse | State::kCallerHolds, std::memory_order_relaxed);
    static_cast<void>(completion.complete(Status()));
  }
  // mark_submitted() of a prepared operation that has ended and that the engine has released.
  void mark_resubmitted() {
    begin();
    completion.reset();
    state_.fetch_or(State::kEngineHolds | State::kNameTaken, std::memory_order_acq_rel);
  }
  // May still be true shortly after done(): the engine wakes sleepers before it releases.
  bool engine_holds() const { return (state_.load(std::memory_order_acquire) & State::kEngineHolds) != 0; }

  // Whether the OperationTable has it.
  bool kept() const { return (state_.load(std::memory_order_relaxed) & State::kKept) != 0; }
  void keep() { state_.fetch_or(State::kKept, std::memory_order_relaxed); }

  // Of a prepared operation that a caller's thread has posted: the engine is not awake to end it, since that thread
  // will do so when it waits. A thread that does not wait sets this to false and wakes the engine.
  bool caller_completes() const { return caller_completes_.load(std::memory_order_acquire); }
  void set_caller_completes(bool completes) { caller_completes_.store(completes, std::memory_order_release); }
  bool in_use() const { return (state_.load(std::memory_order_acquire) & State::kInUse) != 0; }

  // The name is taken until the operation has ended: the engine frees it before the end becomes visible.
  bool name_taken() const { return (state_.load(std::memory_order_acquire) & State::kNameTaken) != 0; }

  // Driving thread, once: frees the name, then completes the operation. True if Completion::wake() must be called.
  [[nodiscard]] bool end(const Status& status);
  // Of a prepared operation that was performed without having been submitted: its status.
  void end_at_once(const Status& status) {
    completion.reset();
    static_cast<void>(completion.complete(status));
  }
  // end() once that is in the flight record.
  [[nodiscard]] bool end_recorded(const Status& status);

  // Once for each holder. The last one resets the operation, including results.
  void release(Holder holder);
  // The OperationTable drops its reference.
  void forget() {
    if ((state_.fetch_and(~State::kKept, std::memory_order_acq_rel) & State::kInUse) == 0) delete this;
  }

  // Links of the tables that contain it (OperationIndex).
  Operation* next_named = nullptr;
  Operation* next_pending = nullptr;

 private:
  void begin() {
    agreed = false;
    tensors_left = spec.tensors.size();
  }

  // Bits of state_.
  struct State {
    static constexpr std::uint32_t kEngineHolds = 1;  // until its release()
    static constexpr std::uint32_t kCallerHolds = 2;  // until its release()
    static constexpr std::uint32_t kNameTaken = 4;    // until the operation has ended, or the engine releases it
    static constexpr std::uint32_t kInUse = 8;        // from mark_submitted() until the last release() has reset it
    static constexpr std::uint32_t kKept = 16;        // by the OperationTable, until forget()
  };

  const std::shared_ptr<Metrics> metrics_;
  std::atomic<std::uint32_t> state_{State::kKept};
  std::atomic<bool> caller_completes_{false};
};

template <Operation::Holder kHolder>
struct Releaser {
  void operator()(Operation* operation) const { operation->release(kHolder); }
};
using EngineReference = std::unique_ptr<Operation, Releaser<Operation::Holder::engine>>;
using CallerReference = std::unique_ptr<Operation, Releaser<Operation::Holder::caller>>;

// The references of caller and engine to an operation, which is submitted from then on.
struct OperationReferences {
  explicit OperationReferences(Operation& operation) : caller(&operation), engine(&operation) {
    operation.mark_submitted();
  }

  CallerReference caller;
  EngineReference engine;
};

// Operations by name: an intrusive hash table, so that inserting allocates nothing. Owns nothing. kNext: the link
// member; an operation can be in one table for each.
template <Operation* Operation::*kNext>
class OperationIndex {
 public:
  // Null if no operation has the name.
  Operation* find(std::size_t hash, std::string_view name) const {
    Operation* found = chain(hash);
    while (found != nullptr && (found->hash != hash || found->spec.name != name)) found = found->*kNext;
    return found;
  }

  // Requires that no operation has its name.
  void insert(Operation& operation) {
    if (size_ == chains_.size()) grow();
    ++size_;
    link(operation);
  }

  // Requires that the operation is in the table.
  void remove(Operation& operation) {
    Operation** place = &chain(operation.hash);
    while (*place != &operation) place = &((*place)->*kNext);
    *place = operation.*kNext;
    --size_;
  }

  std::size_t size() const { return size_; }

  // Calls visit(operation) for each, in no order; it may remove the operation that it is given.
  template <typename Visit>
  void for_each(const Visit& visit) const {
    for (Operation* first : chains_) {
      for (Operation* one = first; one != nullptr;) {
        Operation& visited = *one;
        one = one->*kNext;
        visit(visited);
      }
    }
  }

 private:
  static constexpr std::size_t kFirstChains = 16;

  Operation*& chain(std::size_t hash) { return chains_[hash & (chains_.size() - 1)]; }
  Operation* chain(std::size_t hash) const { return chains_[hash & (chains_.size() - 1)]; }

  void link(Operation& operation) {
    Operation*& first = chain(operation.hash);
    operation.*kNext = first;
    first = &operation;
  }

  void grow() {
    std::vector<Operation*> old(chains_.size() * 2);
    old.swap(chains_);
    for (Operation* one : old) {
      while (one != nullptr) {
        Operation* const next = one->*kNext;
        link(*one);
        one = next;
      }
    }
  }

  std::vector<Operation*> chains_ = std::vector<Operation*>(kFirstChains);  // a power of two
  std::size_t size_ = 0;
};

// A submitted operation that is in no table: it is deleted with its last reference.
OperationReferences make_message_operation(const std::shared_ptr<Metrics>& metrics);

// Converts a spec to the flight recorder's format.
FlightWords describe(const OperationSpec& spec);

}  // namespace hvd
