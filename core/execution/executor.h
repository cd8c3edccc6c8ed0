// Performs the buckets of one process set: builds the call, selects the backend, completes the operations. Called only
// by the thread that drives the engine.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/base/metrics.h"
#include "core/config.h"
#include "core/device/device_runtime.h"
#include "core/execution/backend.h"
#include "core/execution/bucket.h"
#include "core/operation/call.h"
#include "core/operation/pending_operations.h"
#include "core/timeline/timeline.h"

namespace hvd {

class TimelineRows;

// A call that a locked schedule has ready for an operation on one tensor whose caller waits for it: only the addresses
// are to be filled in.
struct DirectCall {
  const OperationSpec* spec = nullptr;  // null: this stage cannot be performed directly
  Backend* backend = nullptr;
  CollectiveCall call;
  std::int64_t bytes = 0;
  FlightWords described{};
  std::uint32_t slot = 0;  // of the response cache, which has the operation

  // Compares everything except the name.
  bool fits(const Call& asked) const { return spec != nullptr && asked.repeats(*spec); }
};

class Executor {
 public:
  // `rank` is this process's position in the set; the backends use the same numbers. References outlive this object.
  // `devices`: for results in device memory; null: not supported.
  Executor(std::vector<std::unique_ptr<Backend>> backends, const ProcessSet& set, int rank, const Config& config,
           Metrics& metrics, Timeline& timeline, std::shared_ptr<DeviceRuntime> devices = nullptr);

  // Performs the buckets in order, and ends those of their operations of which no tensor is left, or which have failed:
  // `pending` has them. Then the buckets refer to no operation any more.
  //
  // Throws what the backend throws: the data plane is broken then, and the job with it. A call that no backend can
  // perform (Unsupported, Mismatch) ends with an error on its operations only, on every rank alike; the other tensors
  // of a grouped operation that has failed are left out. False, without effect, if the first bucket was asked for and
  // another rank has declined it.
  bool run(std::span<Bucket> buckets, PendingOperations& pending, DrivingThread driving_thread,
           EntryMode first = EntryMode::negotiated);

  // A direct call for a bucket of one tensor whose memory the caller passes; without a spec if the bucket does not
  // qualify.
  DirectCall make_direct(const Bucket& bucket) const;
  // Performs it, EntryMode::asking. False if another rank has declined. Throws Unsupported and Mismatch, too: then the
  // operation has ended with that error on every rank alike, and the data plane remains usable.
  bool run(DirectCall& direct, const TensorMemory& memory);
  // The same in two halves: Backend::post(), and wait_posted(), which the engine's thread may call.
  bool post(DirectCall& direct, const TensorMemory& memory);
  bool wait_posted(DirectCall& direct, DrivingThread driving_thread);

  // As in Backend, for all backends.
  Deadline watch(TimePoint now);
  void give_up(const Status& reason) noexcept;
  bool can_be_asked() const;
  void decline();
  void tune(const Knobs& knobs);
  void set_late_callback(Duration timeout, const std::function<bool()>& late);

 private:
  void fill_in(DirectCall& direct, const TensorMemory& memory) const;
  bool perform_counted(DirectCall& direct, void (Backend::*perform)(const CollectiveCall&));
  void count_direct(std::uint64_t bytes);
  bool run(Bucket& bucket, PendingOperations& pending, DrivingThread driving_thread, EntryMode entry, Status& status);
  // Returns Unsupported if no backend can perform the call. Throws Declined.
  Status run(const CollectiveCall& call, TimelineRows& rows);
  void run_on(Backend& backend, const CollectiveCall& call);
  void revert(const Bucket& bucket);
  void complete(Bucket& bucket, PendingOperations& pending, const Status& status);

  std::vector<std::unique_ptr<Backend>> backends_;
  const ProcessSet& set_;
  const int rank_;
  const JoinDivisor join_divisor_;
  Metrics& metrics_;
  Timeline& timeline_;
  const std::shared_ptr<DeviceRuntime> devices_;
  std::shared_ptr<DeviceCompletion> enqueued_;  // of the current bucket
  const Duration cost_of_measuring_;            // CPU time that the clock itself takes of a measured interval
  std::uint64_t sequence_ = 0;                  // calls so far
  unsigned calls_ = 0;                          // of run_on()
  std::vector<EngineReference> to_wake_;        // operations of the current bucket whose callers are to be woken
};

}  // namespace hvd
