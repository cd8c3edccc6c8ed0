#include "core/runtime/communicator.h"

#include <numeric>
#include <utility>

#include "core/base/error.h"
#include "core/control/tree/tree_channel.h"

namespace hvd {

namespace {

// Time for peers to read what is still queued for them when this rank leaves.
constexpr Duration kCloseTimeout = std::chrono::seconds(1);

ProcessSet everyone(std::int32_t set_id, int size) {
  ProcessSet set{.id = set_id, .ranks = std::vector<int>(static_cast<std::size_t>(size))};
  std::iota(set.ranks.begin(), set.ranks.end(), 0);
  return set;
}

// All tensors are in one arena, that of the set of all ranks.
Config config_of(Config config, const Communicator* job) {
  if (job != nullptr) config.arena_limit_bytes = 0;
  return config;
}

}  // namespace

Communicator::Communicator(const Common& common, std::int32_t set_id, Topology topology, Store& store,
                           Communicator* job)
    : topology_(std::move(topology)),
      set_(everyone(set_id, topology_.size)),
      config_(config_of(common.config, job)),
      submissions_(common.metrics) {
  const Deadline deadline = deadline_after(config_.start_timeout);
  channel_ = std::make_unique<TreeChannel>(TreeChannel::Options{.topology = topology_,
                                                                .store = store,
                                                                .key = common.job_key,
                                                                .local_host = common.local_host_address,
                                                                .lease = config_.lease,
                                                                .shared_memory = config_.shared_memory,
                                                                .abort = common.abort,
                                                                .log = common.log,
                                                                .metrics = *common.metrics,
                                                                .deadline = deadline,
                                                                .job = job != nullptr ? job->channel_.get() : nullptr});
  try {
    connect_data_plane(common, store, deadline, job == nullptr ? common.on_end : nullptr);
  } catch (...) {
    // The other ranks wait for this one in their constructors.
    end_job(current_exception_status(), topology_, common.abort, *channel_);
    throw;
  }
}

void Communicator::connect_data_plane(const Common& common, Store& store, Deadline deadline,
                                      const std::function<void(const Status&)>& on_end) {
  DataPlane data_plane = common.make_data_plane(BackendContext{.topology = topology_,
                                                               .store = store,
                                                               .job_key = common.job_key,
                                                               .config = config_,
                                                               .abort = common.abort,
                                                               .log = common.log,
                                                               .local_host_address = common.local_host_address,
                                                               .deadline = deadline});
  if (config_.fusion_threshold_bytes == kAutomaticThreshold) config_.fusion_threshold_bytes = data_plane.bucket_bytes;
  arena_ = std::move(data_plane.arena);
  devices_ = std::move(data_plane.devices);
  algorithms_ = std::move(data_plane.algorithms);
  engine_ = std::make_unique<Engine>(Engine::Parts{.topology = topology_,
                                                   .config = config_,
                                                   .log = common.log,
                                                   .abort = common.abort,
                                                   .channel = *channel_,
                                                   .names = submissions_,
                                                   .metrics = *common.metrics,
                                                   .timeline = common.timeline,
                                                   .flight = common.flight,
                                                   .set = set_,
                                                   .on_end = on_end},
                                     std::make_unique<Executor>(std::move(data_plane.backends), set_, topology_.rank,
                                                                config_, *common.metrics, common.timeline, devices_));
}

void Communicator::settle_device(int device) {
  int settled = kCpuDevice;
  if (device_.compare_exchange_strong(settled, device) || settled == device) return;
  throw InvalidArgument("a tensor lies on GPU " + std::to_string(device) + ", but this rank's tensors of process set " +
                        std::to_string(set_.id) + " have been on GPU " + std::to_string(settled) +
                        " so far: a rank has one GPU in a process set");
}

Communicator::~Communicator() { shut_down(); }

void Communicator::fail(const Status& reason, AbortFlag& abort) {
  abort.raise(reason, [this](const Status& own) { channel_->broadcast_abort(own); });
}

void Communicator::shut_down() {
  const std::lock_guard lock(shut_down_mutex_);
  if (!engine_) return;
  engine_->leave();
  engine_->join();
  if (engine_->all_know()) channel_->close(deadline_after(kCloseTimeout));
}

}  // namespace hvd
