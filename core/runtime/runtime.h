// One rank of a job: all parts of hvd, without global state. submit() may be called from any thread; the engine of the
// process set performs the operation (communicator.h).
//
// Owns all parts and destroys them in order. A test makes several, one for each of its threads.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
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
#include "core/runtime/prepared_operations.h"
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

  const Topology& topology() const;
  const Log& log() const;
  // The memory of tensors shared with the other ranks of this host; null if there is none. Outlives the runtime.
  const std::shared_ptr<TensorArena>& arena() const;

  // Which algorithm serves an allreduce of which size, and why: lines for people.
  const std::string& algorithms() const;

  // Any thread.
  const Metrics& metrics() const;
  const std::shared_ptr<Metrics>& shared_metrics() const;
  const FlightRecorder& flight() const;

  // As in Timeline, on rank 0; no effect on other ranks. Any thread.
  void start_timeline(const std::string& path, bool marks_rounds);
  void stop_timeline();

  // As in Communicator, for the process set of the call; InvalidArgument also if this rank is not in it. Any thread.
  CallerReference submit(const Call& call);
  CallerReference run(const Call& call, Duration timeout) {
    return call.process_set == kGlobalProcessSet ? global_->run(call, timeout) : run_in_set(call, timeout);
  }
  // Throws InvalidArgument also if the calls are not all for one process set.
  std::vector<CallerReference> run_all(std::span<const Call> calls, Duration timeout);

  PreparedOperations& prepared();

  // Messages between two ranks (core/execution/channel.h): to `message.peer`, or from it, or from any rank. Independent
  // of the operations of all ranks. The job's end ends them; messages that have arrived before may still be received.
  // Throws InvalidArgument if no such rank exists, or it is this one. Any thread.
  CallerReference send(const Message& message);
  CallerReference receive(const Message& message);

  ProcessSets& sets();

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
  CallerReference run_in_set(const Call& call, Duration timeout);
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
  const std::function<void(const Status&)> on_end_;
  std::shared_ptr<Communicator> global_;
  std::unique_ptr<ProcessSets> sets_;  // after global_: the communicators of other sets use it
  std::optional<PreparedOperations> prepared_;
  Mutex shut_down_mutex_;  // held throughout shut_down()
};

}  // namespace hvd
