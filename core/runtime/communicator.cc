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
  if (job != nullptr) config.data_plane.arena_limit_bytes = 0;
  return config;
}

}  // namespace

UnnamedTurn::Taken UnnamedTurn::take(Deadline deadline) {
  const MutexLock lock(mutex_);
  if (!free_.wait_until(mutex_, deadline, [this]() REQUIRES(mutex_) { return !taken_; })) {
    throw Timeout(
        "the operation was not started: another one without a name, of another thread, has not ended in time");
  }
  taken_ = true;
  return Taken(this);
}

void UnnamedTurn::release() {
  {
    const MutexLock lock(mutex_);
    taken_ = false;
  }
  free_.notify_one();
}

Communicator::Communicator(const Common& common, std::int32_t set_id, Topology topology, Store& store,
                           Communicator* job)
    : topology_(std::move(topology)),
      set_(everyone(set_id, topology_.size)),
      config_(config_of(common.config, job)),
      metrics_(common.metrics),
      operations_(common.metrics) {
  const Deadline deadline = deadline_after(config_.timeouts.start);
  channel_ = make_tree_channel({.topology = topology_,
                                .store = store,
                                .key = common.job_key,
                                .local_host = common.local_host_address,
                                .lease = config_.timeouts.lease,
                                .shared_memory = config_.data_plane.shared_memory,
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
  if (config_.negotiation.fusion_threshold_bytes == kAutomaticThreshold)
    config_.negotiation.fusion_threshold_bytes = data_plane.bucket_bytes;
  arena_ = std::move(data_plane.arena);
  devices_ = std::move(data_plane.devices);
  algorithms_ = std::move(data_plane.algorithms);
  engine_ = std::make_unique<Engine>(EngineParts{.topology = topology_,
                                                 .config = config_,
                                                 .log = common.log,
                                                 .abort = common.abort,
                                                 .channel = *channel_,
                                                 .names = operations_,
                                                 .metrics = *common.metrics,
                                                 .timeline = common.timeline,
                                                 .flight = common.flight,
                                                 .set = set_,
                                                 .on_end = on_end},
                                     std::make_unique<Executor>(std::move(data_plane.backends), set_, topology_.rank,
                                                                config_, *common.metrics, common.timeline, devices_));
}

// ---- Operations

CallerReference Communicator::submit(const Call& call) {
  const MutexLock submitting(submitting_);
  BegunOperation begun = begin(call);
  if (Status status = engine_->submit(begun.engine); !status.ok()) throw Error(status);
  return std::move(begun.caller);
}

CallerReference Communicator::submit_and_wait(const Call& call, Deadline deadline) {
  const UnnamedTurn::Taken turn = call.name.empty() ? unnamed_turn_.take(deadline) : nullptr;
  CallerReference operation;
  TimePoint started;
  {
    MutexLock submitting(submitting_);
    Call named = call;
    std::string name;
    if (call.name.empty()) {
      name = operations_.name_of_synchronous();
      if (!operations_.is_taken(name)) named.name = name;
    }
    BegunOperation begun = begin(named);
    started = Clock::now();
    if (Status status = engine_->run({&begun, 1}, submitting, deadline); !status.ok()) throw Error(status);
    operation = std::move(begun.caller);
  }
  operation->completion.wait_until_over(deadline);
  metrics_->exposed_time.add(Clock::now() - started);
  return operation;
}

std::vector<CallerReference> Communicator::run_all(std::span<const Call> calls, Deadline deadline) {
  std::vector<BegunOperation> begun;
  begun.reserve(calls.size());
  TimePoint started;
  {
    MutexLock submitting(submitting_);
    for (const Call& call : calls) begun.push_back(begin(call));
    started = Clock::now();
    if (Status status = engine_->run(begun, submitting, deadline); !status.ok()) throw Error(status);
  }
  std::vector<CallerReference> operations;
  operations.reserve(begun.size());
  for (BegunOperation& operation : begun) {
    operation.caller->completion.wait_until_over(deadline);
    operations.push_back(std::move(operation.caller));
  }
  metrics_->exposed_time.add(Clock::now() - started);
  return operations;
}

BegunOperation Communicator::begin(const Call& call) {
  if (auto again = operations_.take_again(call)) return std::move(*again);
  OperationSpec spec = check_call(call, set_, topology_.rank);
  spec.name = call.collective == Collective::join ? kJoinName : call.name;
  OperationMemory memory{.allocates_outputs = call.outputs.empty()};
  if (!call.inputs.empty()) memory.device = call.inputs.front().device;
  memory.ready = ready_event(call);
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    memory.tensors.push_back(
        {.input = call.inputs[i].data, .output = call.outputs.empty() ? nullptr : call.outputs[i].data});
  }
  return operations_.take(std::move(spec), std::move(memory));
}

// The event after which the call's tensors may be accessed, if they are on a device.
std::shared_ptr<const DeviceEvent> Communicator::ready_event(const Call& call) {
  if (call.inputs.empty() || call.inputs.front().device == kCpuDevice) return nullptr;
  if (!devices_) throw Unsupported("the tensors lie on an accelerator, which this hvd knows nothing of");
  const int device = call.inputs.front().device;
  try {
    auto ready = devices_->record(device, call.stream);
    settle_device(device);
    return ready;
  } catch (const Unsupported& error) {
    throw Unsupported(std::string("the tensors lie on an accelerator, but ") + error.what());
  }
}

// All tensors of a rank in one set are on one device, since a communicator is made for a device: the first tensor
// determines it.
void Communicator::settle_device(int device) {
  int settled = kCpuDevice;
  if (device_.compare_exchange_strong(settled, device) || settled == device) return;
  throw InvalidArgument("a tensor lies on GPU " + std::to_string(device) + ", but this rank's tensors of process set " +
                        std::to_string(set_.id) + " have been on GPU " + std::to_string(settled) +
                        " so far: a rank has one GPU in a process set");
}

// ---- The end

Communicator::~Communicator() { shut_down(); }

void Communicator::fail(const Status& reason, AbortFlag& abort) {
  abort.raise(reason, [this](const Status& own) { channel_->broadcast_abort(own); });
}

void Communicator::shut_down() {
  const MutexLock lock(shut_down_mutex_);
  engine_->leave();
  engine_->join();
  if (engine_->all_know()) channel_->close(deadline_after(kCloseTimeout));
}

}  // namespace hvd
