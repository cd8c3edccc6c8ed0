#include "core/runtime/runtime.h"

#include <signal.h>

#include <algorithm>
#include <thread>

#include "core/base/error.h"
#include "core/bootstrap/rendezvous.h"

namespace hvd {

namespace {

RankIdentity with_settings(RankIdentity identity, const Config& config) {
  identity.settings = shared_settings(config);
  return identity;
}

// How much longer than the failed rank the others live, and how long its exit may take.
constexpr Duration kHeadStart = std::chrono::milliseconds(500);
constexpr Duration kMaxEnd = std::chrono::seconds(3);
constexpr Duration kCausePollInterval = std::chrono::milliseconds(10);

void check_peer(int peer, const Topology& topology) {
  if (peer < 0 || peer >= topology.size) {
    throw InvalidArgument("rank " + std::to_string(peer) + " is not in a job of " + std::to_string(topology.size) +
                          " ranks");
  }
  if (peer == topology.rank) throw InvalidArgument("a rank cannot send messages to itself, nor receive its own");
}

}  // namespace

Runtime::Runtime(const Config& config, const Dependencies& dependencies)
    : config_(config),
      flight_(config.diagnosis.flight_recorder, config.job.rank,
              config.timeouts.stall_check ? config.timeouts.stall_warning : Duration::zero()),
      topology_(make_topology(config.job.rank, exchange_identities(dependencies.store, config.job.rank, config.job.size,
                                                                   with_settings(dependencies.identity, config),
                                                                   deadline_after(config.timeouts.start)))),
      log_("rank " + std::to_string(config.job.rank), config.diagnosis.log_level),
      store_(dependencies.store.with_alarm([this] { abort_.check(); })),
      job_key_(dependencies.job_key),
      local_host_address_(dependencies.local_host_address),
      make_data_plane_(dependencies.make_data_plane),
      channel_(dependencies.make_channel(BackendContext{.topology = topology_,
                                                        .store = store_,
                                                        .job_key = job_key_,
                                                        .config = config_,
                                                        .abort = abort_,
                                                        .log = log_,
                                                        .local_host_address = local_host_address_,
                                                        .deadline = Deadline::max()})),
      on_end_([this](const Status& reason) { channel_->end(reason); }) {
  if (!flight_.problem().empty()) log_.warning(flight_.problem());
  check_settings(topology_);
  const Communicator::Common common{.config = config_,
                                    .log = log_,
                                    .job_key = job_key_,
                                    .local_host_address = local_host_address_,
                                    .make_data_plane = make_data_plane_,
                                    .abort = abort_,
                                    .metrics = metrics_,
                                    .timeline = timeline_,
                                    .flight = flight_,
                                    .on_end = on_end_};
  global_ = std::make_shared<Communicator>(common, kGlobalProcessSet, topology_, store_, nullptr);
  sets_ = std::make_unique<ProcessSets>(topology_, store_, common, global_);
  prepared_.emplace(*sets_, global_);
  if (topology_.rank == 0) log_.info(algorithms());
  start_wanted_timeline();
  flight_.initialized();
}

Runtime::~Runtime() { shut_down(); }

const Topology& Runtime::topology() const { return topology_; }

const Log& Runtime::log() const { return log_; }

const std::shared_ptr<TensorArena>& Runtime::arena() const { return global_->arena(); }

const std::string& Runtime::algorithms() const { return global_->algorithms(); }

const Metrics& Runtime::metrics() const { return *metrics_; }

const std::shared_ptr<Metrics>& Runtime::shared_metrics() const { return metrics_; }

const FlightRecorder& Runtime::flight() const { return flight_; }

// ---- Operations and messages

CallerReference Runtime::submit(const Call& call) {
  if (call.process_set == kGlobalProcessSet) return global_->submit(call);
  const ProcessSets::Entry target = sets_->find_local(call.process_set);
  return target.communicator->submit(in_numbering_of(*target.set, call));
}

CallerReference Runtime::run_in_set(const Call& call, Duration timeout) {
  const ProcessSets::Entry target = sets_->find_local(call.process_set);
  return target.communicator->run(in_numbering_of(*target.set, call), timeout);
}

std::vector<CallerReference> Runtime::run_all(std::span<const Call> calls, Duration timeout) {
  if (calls.empty()) return {};
  const std::int32_t number = calls.front().process_set;
  if (std::ranges::any_of(calls, [&](const Call& call) { return call.process_set != number; })) {
    throw InvalidArgument("operations that are started together must be in one process set");
  }
  if (number == kGlobalProcessSet) return global_->run_all(calls, timeout);
  const ProcessSets::Entry target = sets_->find_local(number);
  std::vector<Call> renumbered;
  for (const Call& call : calls) renumbered.push_back(in_numbering_of(*target.set, call));
  return target.communicator->run_all(renumbered, timeout);
}

PreparedOperations& Runtime::prepared() { return *prepared_; }

CallerReference Runtime::send(const Message& message) {
  check_peer(message.peer, topology_);
  OperationReferences references = make_message_operation(metrics_);
  channel_->send(message, std::move(references.engine));
  return std::move(references.caller);
}

CallerReference Runtime::receive(const Message& message) {
  if (message.peer != kAnyRank) check_peer(message.peer, topology_);
  OperationReferences references = make_message_operation(metrics_);
  channel_->receive(message, std::move(references.engine));
  return std::move(references.caller);
}

ProcessSets& Runtime::sets() { return *sets_; }

// ---- The timeline, and the end

void Runtime::start_timeline(const std::string& path, bool marks_rounds) {
  if (topology_.rank == 0) timeline_.start(path, marks_rounds);
}

void Runtime::stop_timeline() { timeline_.stop(); }

// A job must not fail because its timeline cannot be written.
void Runtime::start_wanted_timeline() {
  if (config_.diagnosis.timeline.empty() || config_.diagnosis.timeline == "DYNAMIC") return;
  try {
    start_timeline(config_.diagnosis.timeline, config_.diagnosis.timeline_marks_rounds);
  } catch (const Error& error) {
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
  const bool is_told_causes = config_.diagnosis.flight_recorder >= 0;
  if (!end || is_told_causes) return;
  TimePoint gone = end->when;
  if (end->culprit >= 0 && end->culprit < topology_.size &&
      topology_.host_of[static_cast<std::size_t>(end->culprit)] == topology_.host()) {
    const pid_t pid = topology_.identities[static_cast<std::size_t>(end->culprit)].pid;
    for (; kill(pid, 0) == 0 && gone < end->when + kMaxEnd; gone = Clock::now()) {
      std::this_thread::sleep_for(kCausePollInterval);
    }
  }
  std::this_thread::sleep_until(gone + kHeadStart);
}

void Runtime::shut_down() {
  const MutexLock lock(shut_down_mutex_);
  channel_->close();
  sets_->shut_down();
  global_->shut_down();
  flight_.left();
  timeline_.stop();
}

void Runtime::abandon_in_child() noexcept { sets_->abandon_in_child(); }

}  // namespace hvd
