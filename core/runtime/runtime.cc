#include "core/runtime/runtime.h"

#include <numeric>

#include "core/base/error.h"
#include "core/negotiation/star_channel.h"
#include "core/rendezvous/exchange_identities.h"

namespace hvd {

namespace {

// Time for peers to take what is still queued for them when this rank leaves.
constexpr Duration kClosePatience = std::chrono::seconds(1);

ProcessSet make_global_set(int size) {
  ProcessSet set{.id = kGlobalProcessSet, .ranks = std::vector<int>(static_cast<std::size_t>(size))};
  std::iota(set.ranks.begin(), set.ranks.end(), 0);
  return set;
}

RankIdentity with_settings(RankIdentity identity, const Config& config) {
  identity.settings = shared_settings(config);
  return identity;
}

}  // namespace

Runtime::Runtime(const Config& config, const Surroundings& around)
    : config_(config),
      topology_(make_topology(config.rank, exchange_identities(around.store, config.rank, config.size,
                                                               with_settings(around.identity, config),
                                                               deadline_after(config.start_timeout)))),
      log_("rank " + std::to_string(config.rank), config.log_level),
      global_set_(make_global_set(config.size)) {
  check_settings(topology_);
  const Deadline deadline = deadline_after(config_.start_timeout);
  channel_ = std::make_unique<StarChannel>(StarChannel::Options{.topology = topology_,
                                                                .store = around.store,
                                                                .key = around.job_key,
                                                                .own_host = around.own_host_address,
                                                                .shared_memory = config_.shared_memory,
                                                                .abort = abort_,
                                                                .log = log_,
                                                                .metrics = *metrics_,
                                                                .deadline = deadline});
  DataPlane data_plane = around.make_data_plane(BackendContext{.topology = topology_,
                                                               .store = around.store,
                                                               .job_key = around.job_key,
                                                               .config = config_,
                                                               .abort = abort_,
                                                               .log = log_,
                                                               .own_host_address = around.own_host_address,
                                                               .deadline = deadline});
  arena_ = std::move(data_plane.arena);
  algorithms_ = std::move(data_plane.algorithms);
  if (topology_.rank == 0) log_.info(algorithms_);
  start_wanted_timeline();
  engine_ = std::make_unique<Engine>(
      Engine::Parts{.topology = topology_,
                    .config = config_,
                    .log = log_,
                    .abort = abort_,
                    .channel = *channel_,
                    .names = names_,
                    .metrics = *metrics_,
                    .timeline = timeline_,
                    .global_set = global_set_},
      std::make_unique<Executor>(std::move(data_plane.backends), topology_.rank, config_, *metrics_, timeline_));
}

Runtime::~Runtime() { shut_down(); }

const ProcessSet& Runtime::process_set(std::int32_t id) const {
  if (id != kGlobalProcessSet) throw InvalidArgument("there is no process set " + std::to_string(id));
  return global_set_;
}

Submission Runtime::make_submission(const Call& call) {
  const ProcessSet& set = process_set(call.process_set);
  Submission submission{.request = check_call(call, set, topology_.rank),
                        .inputs = call.inputs,
                        .outputs = call.outputs,
                        .work = std::make_shared<Work>(),
                        .name = {},
                        .tensors_left = call.inputs.size()};
  submission.name = names_.take(set.id, call.collective == Collective::join ? kJoinName : call.name);
  submission.request.name = *submission.name;
  return submission;
}

Handle Runtime::submit(const Call& call) {
  const std::lock_guard submitting(submit_mutex_);
  Submission submission = make_submission(call);
  Handle handle(submission.work, submission.name, metrics_);
  if (Status status = engine_->submit(submission); !status.ok()) throw Error(status);
  return handle;
}

Handle Runtime::run(const Call& call, Deadline deadline) {
  std::unique_lock submitting(submit_mutex_);
  Submission submission = make_submission(call);
  Handle handle(submission.work, submission.name, metrics_);
  if (!engine_->run(submission, submitting, deadline)) {
    if (Status status = engine_->submit(submission); !status.ok()) throw Error(status);
    submitting.unlock();
  }
  handle.wait(deadline);
  return handle;
}

void Runtime::start_timeline(const std::string& path, bool marks_rounds) {
  if (topology_.rank == 0) timeline_.start(path, marks_rounds);
}

// A job does not fail for want of its timeline.
void Runtime::start_wanted_timeline() {
  if (config_.timeline.empty() || config_.timeline == "DYNAMIC") return;
  try {
    start_timeline(config_.timeline, config_.timeline_marks_rounds);
  } catch (const InvalidArgument& error) {
    log_.warning(std::string("HVD_TIMELINE: ") + error.what());
  }
}

void Runtime::shut_down() {
  std::lock_guard lock(shut_down_mutex_);
  if (!engine_) return;
  engine_->leave();
  engine_->join();
  timeline_.stop();
  if (engine_->all_know()) channel_->close(deadline_after(kClosePatience));
}

}  // namespace hvd
