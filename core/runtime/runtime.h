// One rank of a job: all parts of hvd, without global state. submit() may be called from any thread; the engine of the
// process set performs the operation (communicator.h).
//
// Owns all parts and destroys them in order. A test makes several, one for each of its threads.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/abort_flag.h"
#include "core/base/log.h"
#include "core/base/metrics.h"
#include "core/base/mutex.h"
#include "core/bootstrap/store.h"
#include "core/bootstrap/topology.h"
#include "core/config.h"
#include "core/execution/backend.h"
#include "core/execution/channel.h"
#include "core/flight/flight_recorder.h"
#include "core/runtime/communicator.h"
#include "core/runtime/process_sets.h"
#include "core/timeline/timeline.h"

namespace hvd {

class Runtime {
 public:
  // How ranks reach each other.
  struct Dependencies {
    Store store;
    JobKey job_key;
    RankIdentity identity;
    std::string local_host_address;
    DataPlaneFactory make_data_plane;
    ChannelFactory make_channel;
  };

  // Collective: all ranks construct it together; returns when all have arrived. Throws Timeout that names the ranks
  // that did not come, InvalidArgument, PeerLost.
  Runtime(const Config& config, const Dependencies& dependencies);
  // Calls shut_down(), and releases all threads, memory and connections.
  ~Runtime();

  const Topology& topology() const { return topology_; }
  const Log& log() const { return log_; }
  // The memory of tensors shared with the other ranks of this host; null if there is none. Outlives the runtime.
  const std::shared_ptr<TensorArena>& arena() const { return global_->arena(); }

  // Which algorithm serves an allreduce of which size, and why: lines for people.
  const std::string& algorithms() const { return global_->algorithms(); }

  // Any thread.
  const Metrics& metrics() const { return *metrics_; }
  const std::shared_ptr<Metrics>& shared_metrics() const { return metrics_; }
  const FlightRecorder& flight() const { return flight_; }

  // As in Timeline, on rank 0; no effect on other ranks. Any thread.
  void start_timeline(const std::string& path, bool marks_rounds);
  void stop_timeline() { timeline_.stop(); }

  // As in Communicator, for the process set of the call; InvalidArgument also if this rank is not in it. Any thread.
  CallerReference submit(const Call& call);
  CallerReference run(const Call& call, Deadline deadline) {
    return call.process_set == kGlobalProcessSet ? global_->run(call, deadline) : run_in_set(call, deadline);
  }
  // Throws InvalidArgument also if the calls are not all for one process set.
  std::vector<CallerReference> run_all(std::span<const Call> calls, Deadline deadline);

  // The same for operations that are prepared once and started many times. InvalidArgument also if this runtime, or the
  // process set as it is now, is not the one that the operation was prepared in.
  CallerReference prepare(const Call& call);
  void start(Operation& operation) {
    at_home(operation, [&](Communicator& home) { home.start(operation); });
  }
  void run(Operation& operation, Deadline deadline) {
    at_home(operation, [&](Communicator& home) { home.run(operation, deadline); });
  }
  // For the caller of an operation that is left to it (Operation::left_to_caller): before it waits, and if it does not.
  void finish(Operation& operation) {
    at_home(operation, [](Communicator& home) { home.finish(); });
  }
  void leave_to_engine(Operation& operation) {
    at_home(operation, [&](Communicator& home) { home.leave_to_engine(operation); });
  }

  // Messages between two ranks (core/execution/channel.h): to `message.peer`, or from it, or from any rank. Independent
  // of the operations of all ranks. The job's end ends them; messages that have arrived before may still be received.
  // Throws InvalidArgument if no such rank exists, or it is this one. Any thread.
  CallerReference send(const Message& message);
  CallerReference receive(const Message& message);

  // Process sets: ordered subsets of the ranks. All ranks of the job must call these two in the same order, members or
  // not; they return when all have. Any thread, one at a time.
  //
  // Adds a set of these ranks, in any order; returns its number, the same on every rank. Throws InvalidArgument (a rank
  // that does not exist, or such a set exists already), Mismatch if the ranks of the job ask for different sets.
  std::int32_t add_process_set(std::vector<int> ranks) { return sets_->add(std::move(ranks)); }
  // The number may be reused. Throws InvalidArgument if no such set exists, if it is that of all ranks, or if
  // operations of this rank are in flight in it; Mismatch.
  void remove_process_set(std::int32_t id) { sets_->remove(id); }
  // All sets, by number; or one set, InvalidArgument if it does not exist. Any thread.
  std::vector<ProcessSet> process_sets() const { return sets_->all(); }
  ProcessSet process_set(std::int32_t id) const { return *sets_->find(id).set; }

  // Ends the job as a failure of this rank: pending and later operations of all ranks end with StatusCode::aborted and
  // "rank 2 on h2 <cause>". No effect if the job has ended. Any thread.
  void fail(const std::string& cause);

  // Delays the exit of a rank. Launchers other than hvdrun take the process that exits first for the one that failed:
  // if another rank has ended the job, returns half a second after this rank has learned of it or, if that rank is on
  // this host, after its process has exited (after three seconds at the latest).
  void let_cause_end_first() const;

  // Ends the run on every rank; open works are completed with StatusCode::shut_down. Idempotent; any thread.
  void shut_down();

  // In a forked child, which has memory but no threads of this process: closes its copies of the connections.
  void abandon_in_child() noexcept;

 private:
  // Calls use(communicator) with that of a prepared operation.
  template <typename Use>
  void at_home(const Operation& operation, const Use& use) {
    if (operation.spec.process_set == kGlobalProcessSet) return use(checked_home(operation, global_));
    const ProcessSets::Entry target = sets_->find_local(operation.spec.process_set);
    use(checked_home(operation, target.communicator));
  }
  static Communicator& checked_home(const Operation& operation, const std::shared_ptr<Communicator>& present) {
    if (operation.home.owner_before(present) || present.owner_before(operation.home)) throw_stale(operation);
    return *present;
  }
  [[noreturn]] static void throw_stale(const Operation& operation);
  CallerReference run_in_set(const Call& call, Deadline deadline);
  void start_wanted_timeline();

  const Config config_;
  FlightRecorder flight_;  // begins before the rendezvous
  const Topology topology_;
  const Log log_;
  AbortFlag abort_;
  Store store_;
  const JobKey job_key_;
  const std::string local_host_address_;
  const DataPlaneFactory make_data_plane_;
  const std::shared_ptr<Metrics> metrics_ = flight_.metrics();
  Timeline timeline_{log_};
  const std::unique_ptr<Channel> channel_;
  const std::function<void(const Status&)> on_end_ = [this](const Status& reason) { channel_->end(reason); };
  std::shared_ptr<Communicator> global_;
  std::unique_ptr<ProcessSets> sets_;  // after global_: the communicators of other sets use it
  Mutex shut_down_mutex_;              // held throughout shut_down()
};

}  // namespace hvd
