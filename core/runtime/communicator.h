// What one process set has for itself: control channel, backends and engine, with the same code for all ranks of the
// job as for some. Lanes share nothing that one could hold the other up with: sets negotiate and work at the same time,
// also where a rank is in several.
//
// Inside a communicator ranks are numbered anew, from 0, in the order of the set (Topology::job_ranks).
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "core/base/abort_flag.h"
#include "core/base/log.h"
#include "core/base/metrics.h"
#include "core/config.h"
#include "core/engine/engine.h"
#include "core/execution/backend_context.h"
#include "core/flight/flight_recorder.h"
#include "core/negotiation/control_channel.h"
#include "core/rendezvous/topology.h"
#include "core/submission/named_submissions.h"
#include "core/tensor/tensor_view.h"
#include "core/timeline/timeline.h"

namespace hvd {

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
  // come, PeerLost; for the ranks that have connected to this one the job is over then, with the same reason.
  Communicator(const Common& common, std::int32_t set_id, Topology topology, Store& store, Communicator* job);
  // shut_down(), and then all threads, memory and connections are gone.
  ~Communicator();

  const Topology& topology() const { return topology_; }
  const std::shared_ptr<TensorArena>& arena() const { return arena_; }
  const std::string& algorithms() const { return algorithms_; }
  NamedSubmissions& submissions() { return submissions_; }
  Engine& engine() { return *engine_; }
  // Null: tensors on devices are not supported.
  DeviceRuntime* devices() const { return devices_.get(); }

  // A rank's tensors of one set all lie on one device, since a communicator is made for it: the first one says which.
  // Throws InvalidArgument for another. Any thread.
  void settle_device(int device);

  // For callers. The first one comes first.
  std::mutex running_unnamed;  // held while a synchronous operation without a name is under way
  std::mutex submitting;       // taking a name and submitting in one: nothing is submitted behind a join

  // Ends the job with `reason` on every rank of it, in the same words. Any thread.
  void fail(const Status& reason, AbortFlag& abort);

  // Ends the run on every rank of the set; open works are completed with StatusCode::shut_down. Idempotent; any thread.
  void shut_down();

  // See ControlChannel.
  void abandon_in_child() noexcept { channel_->abandon_in_child(); }

 private:
  void connect_data_plane(const Common& common, Store& store, Deadline deadline,
                          const std::function<void(const Status&)>& on_end);

  const Topology topology_;
  const ProcessSet set_;  // of the communicator's own numbers
  Config config_;
  std::shared_ptr<TensorArena> arena_;
  std::shared_ptr<DeviceRuntime> devices_;
  std::atomic<int> device_{kCpuDevice};
  std::string algorithms_;
  NamedSubmissions submissions_;
  std::unique_ptr<ControlChannel> channel_;
  std::unique_ptr<Engine> engine_;
  std::mutex shut_down_mutex_;
};

}  // namespace hvd
