#include "core/runtime/runtime.h"

#include <signal.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <thread>
#include <utility>

#include "core/base/error.h"
#include "core/bootstrap/rank_exchange.h"
#include "core/bootstrap/store_views.h"

namespace hvd {

namespace {

// The name of the operation by which ranks agree on changes of process sets.
constexpr const char* kChangeName = "<process sets>";

RankIdentity with_settings(RankIdentity identity, const Config& config) {
  identity.settings = shared_settings(config);
  return identity;
}

ProcessSet everyone(const Topology& topology) { return {.id = kGlobalProcessSet, .ranks = topology.job_ranks}; }

// How much longer than the failed rank the others live, and how long its exit may take.
constexpr Duration kHeadStart = std::chrono::milliseconds(500);
constexpr Duration kLongestEnd = std::chrono::seconds(3);
constexpr Duration kLookAgain = std::chrono::milliseconds(10);

// The first number of a change that ranks agree on; then the ranks or the number of the set.
constexpr std::int64_t kAdd = 1, kRemove = 2;

std::string change_text(const std::vector<std::int64_t>& change) {
  if (change.empty()) return "do nothing";
  const Shape rest(change.begin() + 1, change.end());
  return (change.front() == kAdd ? "add one of ranks " : "remove number ") + to_string(rest);
}

void check_members(const std::vector<int>& ranks, int size) {
  if (ranks.empty()) throw InvalidArgument("a process set needs at least one rank");
  for (const int rank : ranks) {
    if (rank >= 0 && rank < size) continue;
    throw InvalidArgument("rank " + std::to_string(rank) + " is not in a job of " + std::to_string(size) + " ranks");
  }
  if (std::adjacent_find(ranks.begin(), ranks.end()) != ranks.end()) {
    throw InvalidArgument("a process set cannot have a rank twice: " + to_string(Shape(ranks.begin(), ranks.end())));
  }
}

// The event after which the call's tensors may be accessed, if they are on a device.
std::shared_ptr<const DeviceEvent> ready_event(const Call& call, Communicator& communicator) {
  if (call.inputs.empty() || call.inputs.front().device == kCpuDevice) return nullptr;
  if (communicator.devices() == nullptr)
    throw Unsupported("the tensors lie on an accelerator, which this hvd knows nothing of");
  const int device = call.inputs.front().device;
  try {
    auto ready = communicator.devices()->record(device, call.stream);
    communicator.settle_device(device);
    return ready;
  } catch (const Unsupported& error) {
    throw Unsupported(std::string("the tensors lie on an accelerator, but ") + error.what());
  }
}

// A submission that is in no name table, and is not reused.
struct OneTime {
  EnginesSubmission engines;
  CallersSubmission callers;
};

OneTime begin_one_time(const std::shared_ptr<Metrics>& metrics) {
  auto* const submission = new Submission(metrics);
  submission->begin();
  submission->forget();
  return {EnginesSubmission(submission), CallersSubmission(submission)};
}

// Inside a communicator the set's ranks are numbered from 0.
DirectCall in_communicator(DirectCall direct, const ProcessSet& set) {
  if (direct.collective == Collective::broadcast) direct.root = set.rank_of(direct.root).value_or(-1);
  return direct;
}

}  // namespace

Runtime::Runtime(const Config& config, const Dependencies& around)
    : config_(config),
      flight_(config.flight_recorder, config.rank, config.stall_check ? config.stall_warning : Duration::zero()),
      topology_(make_topology(config.rank, exchange_identities(around.store, config.rank, config.size,
                                                               with_settings(around.identity, config),
                                                               deadline_after(config.start_timeout)))),
      log_("rank " + std::to_string(config.rank), config.log_level),
      store_(around.store, [this] { abort_.check(); }),
      job_key_(around.job_key),
      local_host_address_(around.local_host_address),
      make_data_plane_(around.make_data_plane),
      channel_(around.make_channel(BackendContext{.topology = topology_,
                                                  .store = store_,
                                                  .job_key = job_key_,
                                                  .config = config_,
                                                  .abort = abort_,
                                                  .log = log_,
                                                  .local_host_address = local_host_address_,
                                                  .deadline = Deadline::max()})) {
  if (!flight_.problem().empty()) log_.warning(flight_.problem());
  check_settings(topology_);
  global_ = std::make_shared<Communicator>(common(), kGlobalProcessSet, topology_, store_, nullptr);
  sets_.add(everyone(topology_), global_);
  if (topology_.rank == 0) log_.info(algorithms());
  start_wanted_timeline();
  flight_.initialized();
}

Runtime::~Runtime() { shut_down(); }

Communicator::Common Runtime::common() {
  return {.config = config_,
          .log = log_,
          .job_key = job_key_,
          .local_host_address = local_host_address_,
          .make_data_plane = make_data_plane_,
          .abort = abort_,
          .metrics = metrics_,
          .timeline = timeline_,
          .flight = flight_,
          .on_end = on_end_};
}

// ---- Operations

NamedSubmissions::Taken Runtime::take(Call call, const ProcessSetTable::Entry& target) {
  Request request = check_call(call, *target.set, topology_.rank);
  // Inside a communicator the set's ranks are numbered from 0.
  if (call.collective == Collective::broadcast) request.root = target.set->rank_of(call.root).value();
  request.name = call.collective == Collective::join ? kJoinName : std::move(call.name);
  std::shared_ptr<const DeviceEvent> ready = ready_event(call, *target.communicator);
  NamedSubmissions::Taken taken = target.communicator->submissions().take(std::move(request));
  Submission& submission = *taken.engines;
  submission.device = call.inputs.empty() ? kCpuDevice : call.inputs.front().device;
  submission.ready = std::move(ready);
  submission.allocates_outputs = call.outputs.empty();
  submission.tensors.resize(call.inputs.size());
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    submission.tensors[i] = {.input = call.inputs[i].data,
                             .output = call.outputs.empty() ? nullptr : call.outputs[i].data};
  }
  return taken;
}

ProcessSetTable::Entry Runtime::find_local(std::int32_t process_set) const {
  ProcessSetTable::Entry entry = sets_.find(process_set);
  if (entry.communicator) return entry;
  throw InvalidArgument("rank " + std::to_string(topology_.rank) + " is not in process set " +
                        std::to_string(process_set));
}

Handle Runtime::submit(Call call) {
  const ProcessSetTable::Entry target = find_local(call.process_set);
  const std::lock_guard submitting(target.communicator->submitting);
  return hand_over(take(std::move(call), target), *target.communicator);
}

std::optional<Handle> Runtime::submit_again(const DirectCall& direct) {
  if (direct.process_set == kGlobalProcessSet) return repeat(direct, *global_);
  const ProcessSetTable::Entry target = find_local(direct.process_set);
  return repeat(in_communicator(direct, *target.set), *target.communicator);
}

std::optional<Handle> Runtime::repeat(const DirectCall& direct, Communicator& communicator) {
  const std::lock_guard submitting(communicator.submitting);
  auto taken = communicator.submissions().take_again(direct);
  if (!taken) return std::nullopt;
  return hand_over(std::move(*taken), communicator);
}

Handle Runtime::hand_over(NamedSubmissions::Taken taken, Communicator& communicator) {
  if (Status status = communicator.engine().submit(taken.engines); !status.ok()) throw Error(status);
  return Handle(std::move(taken.callers));
}

Handle Runtime::run(Call call, Deadline deadline) {
  const ProcessSetTable::Entry target = find_local(call.process_set);
  const bool unnamed = call.name.empty();
  std::unique_lock one_unnamed(target.communicator->running_unnamed, std::defer_lock);
  if (unnamed && !one_unnamed.try_lock_until(deadline)) {
    throw Timeout(
        "the operation was not started: another one without a name, of another thread, has not ended in time");
  }
  std::unique_lock submitting(target.communicator->submitting);
  NamedSubmissions& submissions = target.communicator->submissions();
  if (unnamed) call.name = submissions.name_of_synchronous();
  if (unnamed && submissions.is_taken(call.name)) call.name.clear();
  NamedSubmissions::Taken taken = take(std::move(call), target);
  Handle handle(std::move(taken.callers));
  Engine& engine = target.communicator->engine();
  const TimePoint started = Clock::now();
  if (engine.run(taken.engines, submitting, deadline)) {
    metrics_->exposed_time.add(Clock::now() - started);
  } else {
    if (Status status = engine.submit(taken.engines); !status.ok()) throw Error(status);
    submitting.unlock();
  }
  handle.wait(deadline);
  return handle;
}

bool Runtime::run(const DirectCall& direct) {
  if (direct.process_set == kGlobalProcessSet) return global_->engine().run(direct);
  const ProcessSetTable::Entry target = find_local(direct.process_set);
  return target.communicator->engine().run(in_communicator(direct, *target.set));
}

// ---- Messages

Handle Runtime::send(const Message& message) {
  check_peer(message.peer);
  OneTime submission = begin_one_time(metrics_);
  channel_->send(message, std::move(submission.engines));
  return Handle(std::move(submission.callers));
}

Handle Runtime::receive(const Message& message) {
  if (message.peer != kAnyRank) check_peer(message.peer);
  OneTime submission = begin_one_time(metrics_);
  channel_->receive(message, std::move(submission.engines));
  return Handle(std::move(submission.callers));
}

void Runtime::check_peer(int peer) const {
  if (peer < 0 || peer >= topology_.size) {
    throw InvalidArgument("rank " + std::to_string(peer) + " is not in a job of " + std::to_string(topology_.size) +
                          " ranks");
  }
  if (peer == topology_.rank) throw InvalidArgument("a rank cannot send messages to itself, nor receive its own");
}

// ---- Process sets

std::int32_t Runtime::add_process_set(std::vector<int> ranks) {
  std::sort(ranks.begin(), ranks.end());
  check_members(ranks, topology_.size);
  const std::lock_guard changing(changes_mutex_);
  sets_.refuse_duplicate(ranks);
  std::vector<std::int64_t> change{kAdd};
  change.insert(change.end(), ranks.begin(), ranks.end());
  agree(change);
  const ProcessSet set{.id = sets_.lowest_free_id(), .ranks = std::move(ranks)};
  ++sets_so_far_;
  std::shared_ptr<Communicator> communicator;
  Status own;
  try {
    communicator = make_communicator(set);
  } catch (const Error& error) {
    own = error.status();
  }
  const auto outcomes = ask_all({own.ok() ? 1 : 0});
  if (!own.ok()) throw Error(own);
  for (std::size_t rank = 0; rank < outcomes.size(); ++rank) {
    if (outcomes[rank] == std::vector<std::int64_t>{1}) continue;
    throw Aborted("the process set was not added: " + topology_.describe(static_cast<int>(rank)) +
                  " could not reach its other ranks");
  }
  sets_.add(set, std::move(communicator));
  return set.id;
}

void Runtime::remove_process_set(std::int32_t id) {
  if (id == kGlobalProcessSet) throw InvalidArgument("the process set of all ranks cannot be removed");
  const std::lock_guard changing(changes_mutex_);
  const ProcessSetTable::Entry entry = sets_.find(id);
  if (entry.communicator && entry.communicator->submissions().any()) {
    throw InvalidArgument("operations are under way in process set " + std::to_string(id) + ": wait for them first");
  }
  agree({kRemove, id});
  sets_.remove(id);
  if (entry.communicator) entry.communicator->shut_down();
}

std::shared_ptr<Communicator> Runtime::make_communicator(const ProcessSet& set) {
  if (!set.rank_of(topology_.rank)) return nullptr;
  PrefixStore store(store_, "process_set/" + std::to_string(sets_so_far_) + "/");
  return std::make_shared<Communicator>(common(), set.id, make_subset(topology_, set.ranks), store, global_.get());
}

std::vector<std::vector<std::int64_t>> Runtime::ask_all(const std::vector<std::int64_t>& own) {
  std::vector<std::int64_t> said{static_cast<std::int64_t>(own.size())};
  said.insert(said.end(), own.begin(), own.end());
  Call call{.collective = Collective::allgather, .name = kChangeName};
  call.inputs = {{.data = said.data(), .dtype = DType::int64, .shape = {static_cast<std::int64_t>(said.size())}}};
  Handle handle = run(call, Deadline::max());
  if (!handle.work().status().ok()) throw Error(handle.work().status());
  const OwnedTensor& all = handle.work().outputs.front();
  std::vector<std::int64_t> values(static_cast<std::size_t>(all.shape[0]));
  std::memcpy(values.data(), all.memory.get(), values.size() * sizeof(std::int64_t));
  std::vector<std::vector<std::int64_t>> answers;
  for (auto rest = std::span(std::as_const(values)); !rest.empty();) {
    const auto length = static_cast<std::size_t>(rest.front());
    rest = rest.subspan(1);
    if (length > rest.size()) throw Internal("a rank's answer about process sets is malformed");
    answers.emplace_back(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(length));
    rest = rest.subspan(length);
  }
  if (answers.size() != static_cast<std::size_t>(topology_.size)) {
    throw Mismatch("process sets cannot be changed while a rank has joined");
  }
  return answers;
}

void Runtime::agree(const std::vector<std::int64_t>& own) {
  const auto answers = ask_all(own);
  for (std::size_t rank = 1; rank < answers.size(); ++rank) {
    if (answers[rank] == answers[0]) continue;
    throw Mismatch("all ranks must change process sets alike, but " + topology_.describe(0) + " asks to " +
                   change_text(answers[0]) + " and " + topology_.describe(static_cast<int>(rank)) + " to " +
                   change_text(answers[rank]));
  }
}

// ---- The timeline, and the end

void Runtime::start_timeline(const std::string& path, bool marks_rounds) {
  if (topology_.rank == 0) timeline_.start(path, marks_rounds);
}

// A job must not fail because its timeline cannot be written.
void Runtime::start_wanted_timeline() {
  if (config_.timeline.empty() || config_.timeline == "DYNAMIC") return;
  try {
    start_timeline(config_.timeline, config_.timeline_marks_rounds);
  } catch (const InvalidArgument& error) {
    log_.warning(std::string("HVD_TIMELINE: ") + error.what());
  }
}

void Runtime::fail(const std::string& cause) {
  if (flight_.ended_by_another()) return;
  global_->fail(Status(StatusCode::aborted, topology_.name(topology_.rank) + " " + cause, topology_.rank), abort_);
  const Status reason = abort_.reason();
  reason.culprit() == topology_.rank ? flight_.failed(cause) : flight_.job_ended(reason, topology_.rank);
}

void Runtime::let_cause_end_first() const {
  const auto end = flight_.ended_by_another();
  const bool is_told_causes = config_.flight_recorder >= 0;
  if (!end || is_told_causes) return;
  TimePoint gone = end->when;
  if (end->culprit >= 0 && end->culprit < topology_.size &&
      topology_.host_of[static_cast<std::size_t>(end->culprit)] == topology_.host()) {
    const pid_t pid = topology_.identities[static_cast<std::size_t>(end->culprit)].pid;
    for (; kill(pid, 0) == 0 && gone < end->when + kLongestEnd; gone = Clock::now()) {
      std::this_thread::sleep_for(kLookAgain);
    }
  }
  std::this_thread::sleep_until(gone + kHeadStart);
}

void Runtime::shut_down() {
  std::lock_guard lock(shut_down_mutex_);
  if (!global_) return;
  channel_->close();
  for (const ProcessSet& set : sets_.all()) {
    const ProcessSetTable::Entry entry = sets_.find(set.id);
    if (entry.communicator && entry.communicator != global_) entry.communicator->shut_down();
  }
  global_->shut_down();
  flight_.left();
  timeline_.stop();
}

void Runtime::abandon_in_child() noexcept { sets_.abandon_in_child(); }

}  // namespace hvd
