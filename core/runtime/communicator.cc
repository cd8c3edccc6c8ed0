#include "core/runtime/communicator.h"

#include <algorithm>
#include <numeric>
#include <thread>
#include <utility>

#include "core/base/error.h"
#include "core/control/tree/tree_channel.h"

namespace hvd {

namespace {

// Time for peers to read what is still queued for them when this rank leaves.
constexpr Duration kCloseTimeout = std::chrono::seconds(1);
constexpr Duration kNameLook = std::chrono::microseconds(100);

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

OperationMemory memory_of(const Call& call) {
  OperationMemory memory{.allocates_outputs = call.outputs.empty()};
  if (!call.inputs.empty()) memory.device = call.inputs.front().device;
  for (const TensorView& input : call.inputs) memory.tensors.push_back({.input = input.data});
  for (std::size_t i = 0; i < call.outputs.size(); ++i) {
    const TensorView& output = call.outputs[i];
    memory.tensors[i].output = output.data;
    if (differs_by_rank(call.collective)) memory.tensors[i].output_rows = output.shape.front();
  }
  return memory;
}

// Whether a schedule may have it as a single operation: it was submitted before, has ended well, and no other has its
// name.
bool can_be_direct(const Operation& operation) {
  return operation.repeatable && operation.kept() && operation.completion.done() && operation.completion.status().ok();
}

}  // namespace

void UnnamedTurn::Release::operator()(UnnamedTurn* turn) const { turn->release(); }

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
  engine_ = std::make_unique<Engine>(EngineDependencies{.topology = topology_,
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

const Topology& Communicator::topology() const { return topology_; }

const std::shared_ptr<TensorArena>& Communicator::arena() const { return arena_; }

const std::string& Communicator::algorithms() const { return algorithms_; }

// ---- Operations

CallerReference Communicator::submit(const Call& call) {
  const MutexLock submitting(submitting_);
  OperationReferences references = make_operation(call);
  if (Status status = engine_->submit(references.engine); !status.ok()) throw Error(status);
  return std::move(references.caller);
}

CallerReference Communicator::submit_and_wait(const Call& call, Deadline deadline) {
  const UnnamedTurn::Taken turn = call.name.empty() ? unnamed_turn_.take(deadline) : nullptr;
  if (turn) await_synchronous_name(deadline);
  CallerReference operation;
  TimePoint started;
  {
    MutexLock submitting(submitting_);
    Call named = call;
    std::string name;
    if (call.name.empty()) {
      name = operations_.next_synchronous_name();
      named.name = name;
    }
    OperationReferences references = make_operation(named);
    started = Clock::now();
    if (Status status = engine_->run({&references.engine, 1}, submitting, deadline); !status.ok()) throw Error(status);
    operation = std::move(references.caller);
  }
  operation->completion.wait_until_over(deadline);
  metrics_->exposed_time.add(Clock::now() - started);
  return operation;
}

// The operation that has the name may have outlasted its caller's timeout. A rank where it has ended already gives the
// next one the same name: under another name that one would never match.
void Communicator::await_synchronous_name(Deadline deadline) const {
  while (operations_.is_taken(operations_.next_synchronous_name())) {
    if (Clock::now() >= deadline) {
      throw Timeout("the operation was not started: an earlier one without a name has not ended in time");
    }
    std::this_thread::sleep_for(kNameLook);
  }
}

std::vector<CallerReference> Communicator::run_all(std::span<const Call> calls, Duration timeout) {
  const Deadline deadline = later(Clock::now(), timeout);
  std::vector<CallerReference> operations;
  std::vector<EngineReference> submitted;
  operations.reserve(calls.size());
  submitted.reserve(calls.size());
  TimePoint started;
  {
    MutexLock submitting(submitting_);
    try {
      for (const Call& call : calls) {
        OperationReferences both = make_operation(call);
        operations.push_back(std::move(both.caller));
        submitted.push_back(std::move(both.engine));
      }
    } catch (...) {
      // None is started: the numbers of those without a name are the next ones again, as on the other ranks.
      const auto numbered = std::ranges::count_if(calls.first(operations.size()), [](const Call& call) {
        return call.name.empty() && call.collective != Collective::join;
      });
      submitted.clear();
      operations.clear();
      operations_.take_back(static_cast<std::uint64_t>(numbered));
      throw;
    }
    started = Clock::now();
    if (Status status = engine_->run(submitted, submitting, deadline); !status.ok()) throw Error(status);
  }
  for (const CallerReference& operation : operations) operation->completion.wait_until_over(deadline);
  metrics_->exposed_time.add(Clock::now() - started);
  return operations;
}

OperationReferences Communicator::make_operation(const Call& call) {
  if (auto again = operations_.take_again(call)) return std::move(*again);
  OperationSpec spec = check_call(call, set_, topology_.rank);
  spec.name = call.collective == Collective::join ? kJoinName : call.name;
  OperationMemory memory = memory_of(call);
  memory.ready = ready_event(memory.device, call.stream);
  return operations_.take(std::move(spec), std::move(memory));
}

// ---- Prepared operations

CallerReference Communicator::prepare(const Call& call, std::weak_ptr<const void> self) {
  if (call.collective == Collective::join) throw InvalidArgument("a join cannot be prepared: each is submitted anew");
  OperationSpec spec = check_call(call, set_, topology_.rank);
  spec.name = call.name;
  return operations_.prepare(std::move(spec), memory_of(call),
                             {.communicator = std::move(self), .stream = call.stream});
}

namespace {

// The thread that has completed an operation releases it a moment later, after the callbacks of those beside it. Those
// may submit others, so do not wait for the release while holding a lock.
void await_release(const Operation& operation) {
  while (operation.completion.done() && operation.engine_holds()) std::this_thread::yield();
}

}  // namespace

void Communicator::start(Operation& operation) {
  if (can_be_direct(operation) && engine_->post(operation)) return;
  await_release(operation);
  const MutexLock submitting(submitting_);
  EngineReference reference = take_prepared(operation);
  if (Status status = engine_->submit(reference); !status.ok()) {
    static_cast<void>(reference->end(status));
    throw Error(status);
  }
}

void Communicator::run(Operation& operation, Duration timeout) {
  try {
    if (can_be_direct(operation) && engine_->run(operation)) return;
  } catch (const Error& error) {
    operation.end_at_once(error.status());
    throw;
  }
  const TimePoint started = Clock::now();
  const Deadline deadline = later(started, timeout);
  await_release(operation);
  {
    MutexLock submitting(submitting_);
    EngineReference reference = take_prepared(operation);
    if (Status status = engine_->run({&reference, 1}, submitting, deadline); !status.ok()) {
      static_cast<void>(reference->end(status));
      throw Error(status);
    }
  }
  operation.completion.wait_until_over(deadline);
  metrics_->exposed_time.add(Clock::now() - started);
}

EngineReference Communicator::take_prepared(Operation& operation) {
  EngineReference reference = operations_.take_prepared(operation);
  try {
    operation.memory.outputs.clear();
    operation.memory.ready = ready_event(operation.memory.device, operation.prepared->stream);
  } catch (...) {
    static_cast<void>(reference->end(current_exception_status()));
    throw;
  }
  return reference;
}

void Communicator::wait_posted(Operation& operation, Duration timeout) { engine_->wait_posted(operation, timeout); }

void Communicator::hand_to_engine(Operation& operation) { engine_->hand_to_engine(operation); }

bool Communicator::any_in_flight() const { return operations_.any(); }

// ---- Devices

// The event after which tensors may be accessed, if they are on a device.
std::shared_ptr<const DeviceEvent> Communicator::ready_event(int device, void* stream) {
  if (device == kCpuDevice) return nullptr;
  if (!devices_) throw Unsupported("the tensors lie on an accelerator, which this hvd knows nothing of");
  try {
    auto ready = devices_->record(device, stream);
    bind_device(device);
    return ready;
  } catch (const Unsupported& error) {
    throw Unsupported(std::string("the tensors lie on an accelerator, but ") + error.what());
  }
}

// All tensors of a rank in one set are on one device, since a communicator is made for a device: the first tensor
// determines it.
void Communicator::bind_device(int device) {
  int bound = kCpuDevice;
  if (device_.compare_exchange_strong(bound, device) || bound == device) return;
  throw InvalidArgument("a tensor lies on GPU " + std::to_string(device) + ", but this rank's tensors of process set " +
                        std::to_string(set_.id) + " have been on GPU " + std::to_string(bound) +
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

void Communicator::abandon_in_child() noexcept { channel_->abandon_in_child(); }

}  // namespace hvd
