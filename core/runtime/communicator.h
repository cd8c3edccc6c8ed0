// Communicator: a process set on this rank. Owns the set's control channel, its engine and with it the backends, and
// submits operations to them; the set of all ranks is one like others. Communicators share nothing by which one could
// delay another: sets negotiate and work concurrently, also where a rank is in several.
//
// Inside a communicator ranks are renumbered from 0 in the order of the set (Topology::job_ranks).
#pragma once

#include <atomic>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/abort_flag.h"
#include "core/base/log.h"
#include "core/base/metrics.h"
#include "core/base/mutex.h"
#include "core/bootstrap/topology.h"
#include "core/config.h"
#include "core/control/tree/control_channel.h"
#include "core/engine/engine.h"
#include "core/execution/backend.h"
#include "core/flight/flight_recorder.h"
#include "core/operation/call.h"
#include "core/operation/operation_table.h"
#include "core/tensor/tensor.h"
#include "core/timeline/timeline.h"

namespace hvd {

// Admits one synchronous operation without a name at a time: the next one gets its number when this one has ended. Any
// thread.
class UnnamedTurn {
 public:
  struct Release {
    void operator()(UnnamedTurn* turn) const;
  };
  using Taken = std::unique_ptr<UnnamedTurn, Release>;

  // Throws Timeout if the operation in progress has not ended by the deadline.
  Taken take(Deadline deadline);

 private:
  void release();

  Mutex mutex_;
  CondVar free_;
  bool taken_ GUARDED_BY(mutex_) = false;
};

class Communicator {
 public:
  // What all communicators of a runtime use. References outlive the communicator.
  struct Common {
    const Config& config;
    const Log& log;
    const JobKey& job_key;
    const std::string& local_host_address;
    const DataPlaneFactory& make_data_plane;
    AbortFlag& abort;
    const std::shared_ptr<Metrics>& metrics;
    Timeline& timeline;
    FlightRecorder& flight;
    const std::function<void(const Status& reason)>& on_end;  // of the communicator of all ranks
  };

  // All ranks of the topology construct together, with a store that no other communicator uses; returns when all have
  // arrived. `job`: the communicator of all ranks, null if this is it. Throws Timeout that names the ranks that did not
  // come, PeerLost; the ranks that have connected to this one then end the job with the same reason.
  Communicator(const Common& common, std::int32_t set_id, Topology topology, Store& store, Communicator* job);
  // Calls shut_down(), and releases all threads, memory and connections.
  ~Communicator();

  const Topology& topology() const;
  const std::shared_ptr<TensorArena>& arena() const;
  const std::string& algorithms() const;

  // Any thread. `call` is numbered as the communicator is (in_numbering_of()). Throws InvalidArgument or Unsupported
  // (the call is wrong; nothing happened), or an Error with the reason for which the run has ended.
  //
  // Checks the call and hands the operation to the engine; one that repeats the last one of its name is not checked
  // again, and nothing is allocated for it.
  CallerReference submit(const Call& call);
  // Submits and waits: on this thread if the engine is idle, without a handover. Returns when the operation is done, or
  // soon after the timeout (Duration::max(): never), which needs no clock where the call is performed at once. Null:
  // the locked schedule expected this call, and it has been performed on the caller's memory without an operation; if
  // it failed (Unsupported, Mismatch), throws that.
  CallerReference run(const Call& call, Duration timeout) {
    return engine_->run(call) ? nullptr : submit_and_wait(call, later(Clock::now(), timeout));
  }
  // run() for several operations, which are handed over in one go; each has a reference in the result.
  std::vector<CallerReference> run_all(std::span<const Call> calls, Duration timeout);

  // A prepared operation of `self`, which is this communicator: checked, and not started. Throws as submit().
  CallerReference prepare(const Call& call, std::weak_ptr<const void> self);
  // submit() and run() of it. Throw InvalidArgument if it is in flight; run() as the operation ends, too.
  void start(Operation& operation);
  void run(Operation& operation, Duration timeout);
  // See Engine.
  void wait_posted(Operation& operation, Duration timeout);
  void hand_to_engine(Operation& operation);

  // Whether an operation of this rank is in flight. Any thread.
  bool any_in_flight() const;

  // Ends the job with `reason` on every rank, with the same text. Any thread.
  void fail(const Status& reason, AbortFlag& abort);

  // Ends the run on every rank of the set; open works are completed with StatusCode::shut_down. Idempotent; any thread.
  void shut_down();

  // See ControlChannel.
  void abandon_in_child() noexcept;

 private:
  void connect_data_plane(const Common& common, Store& store, Deadline deadline,
                          const std::function<void(const Status&)>& on_end);
  CallerReference submit_and_wait(const Call& call, Deadline deadline);
  void await_synchronous_name(Deadline deadline) const;
  OperationReferences make_operation(const Call& call);
  EngineReference take_prepared(Operation& operation);
  std::shared_ptr<const DeviceEvent> ready_event(int device, void* stream);
  void bind_device(int device);

  const Topology topology_;
  const ProcessSet set_;  // in the communicator's numbering
  Config config_;
  const std::shared_ptr<Metrics> metrics_;
  std::shared_ptr<TensorArena> arena_;
  std::shared_ptr<DeviceRuntime> devices_;  // null: tensors on devices are not supported
  std::atomic<int> device_{kCpuDevice};
  std::string algorithms_;
  OperationTable operations_;
  UnnamedTurn unnamed_turn_;  // held while a synchronous operation without a name is in progress; before submitting_
  Mutex submitting_;          // makes taking a name and submitting atomic: nothing is submitted behind a join
  std::unique_ptr<ControlChannel> channel_;
  std::unique_ptr<Engine> engine_;
  Mutex shut_down_mutex_;  // held throughout shut_down()
};

}  // namespace hvd
