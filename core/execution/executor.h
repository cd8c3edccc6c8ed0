// Performs the buckets of one process set: builds the call, selects the backend, completes the works. Called only by
// the thread that drives the engine.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "core/base/metrics.h"
#include "core/config.h"
#include "core/device/device_runtime.h"
#include "core/execution/backend.h"
#include "core/execution/bucket.h"
#include "core/execution/prepared_call.h"
#include "core/execution/timeline_rows.h"
#include "core/operation/pending_table.h"

namespace hvd {

class Executor {
 public:
  // `rank` is this process's position in the set; the backends use the same numbers. References outlive this object.
  // `devices`: for results in device memory; null: not supported.
  Executor(std::vector<std::unique_ptr<Backend>> backends, const ProcessSet& set, int rank, const Config& config,
           Metrics& metrics, Timeline& timeline, std::shared_ptr<DeviceRuntime> devices = nullptr);

  // Throws what the backend throws: the data plane is broken then, and the job with it. A call that no backend can
  // perform ends with an error on its works only, on every rank alike. False, without effect, if the bucket was asked
  // for and another rank has declined it.
  bool run(const Bucket& bucket, PendingTable& pending, Entry entry = Entry::settled);

  // Prepares a direct call for a bucket of one tensor whose memory the caller passes; without a request if the bucket
  // does not qualify.
  PreparedCall prepare(const Bucket& bucket) const;
  // Performs it, Entry::asking. False if another rank has declined.
  bool run(PreparedCall& prepared, const DirectCall& direct);

  // As in Backend, for all backends.
  Deadline watch(TimePoint now);
  void give_up(const Status& reason) noexcept;
  bool can_be_asked() const;
  void decline();
  void tune(const Knobs& knobs);
  void set_late_callback(Duration timeout, const std::function<bool()>& late);

 private:
  // Returns Unsupported if no backend can perform the call. Throws Declined.
  Status run(const CollectiveCall& call, TimelineRows& rows);
  void run_on(Backend& backend, const CollectiveCall& call);
  void find_local(const Bucket& bucket, const PendingTable& pending);
  void take_back();
  void complete(PendingTable& pending, const Status& status);

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
  std::vector<Submission*> own_;                // of the current bucket, by item; null: this rank has none
  std::vector<EnginesSubmission> slept_on_;     // those of them whose callers are to be woken
};

// Removes the submission from the table and completes its work, if this rank has it.
void complete_pending(PendingTable& pending, const std::string& name, const Status& status);

// Frees the name, then completes the work. True if the caller is to be woken (Work::wake).
[[nodiscard]] bool end_operation(Submission& submission, const Status& status);

}  // namespace hvd
