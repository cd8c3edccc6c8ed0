#include "core/engine/negotiated_runner.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"

namespace hvd {

namespace {

// How long a leaving rank waits for the coordinator's acknowledgement.
constexpr Duration kLeaveTimeout = std::chrono::seconds(5);

// The first rank to leave is the cause of the run's end.
Status with_culprit(const Status& status, int leaving, const Topology& topology) {
  const bool known = leaving >= 0 && leaving < topology.size;
  const int culprit = known ? topology.job_rank_of(leaving) : kNobody;
  return Status(status.code(), status.message(), culprit);
}

}  // namespace

bool tunes(const EngineDependencies& dependencies) {
  return dependencies.config.autotune.enabled && dependencies.topology.rank == 0 && dependencies.topology.size > 1 &&
         dependencies.set.id == kGlobalProcessSet;
}

bool can_lock(const EngineDependencies& dependencies, const Executor& executor) {
  return dependencies.config.negotiation.schedule_lock && executor.can_be_asked();
}

NegotiatedRunner::NegotiatedRunner(EngineContext& context, ScheduleRunner& schedule)
    : context_(context),
      schedule_(schedule),
      tuner_(tunes(context.dependencies)
                 ? std::make_unique<Tuner>(context.dependencies.config, context.dependencies.log)
                 : nullptr) {}

bool NegotiatedRunner::apply_responses() {
  bool any = false;
  while (!end_reason_) {
    auto message = context_.negotiator.next(Clock::now());
    if (!message) break;
    apply(std::move(*message));
    any = true;
  }
  if (any && context_.negotiator.has_response_timeout())
    context_.negotiator.performed(Clock::now(), waits_for_responses());
  return any;
}

void NegotiatedRunner::dispatch(const std::vector<Operation*>& operations) {
  if (schedule_.active()) {
    for (Operation* operation : operations) schedule_.add(*operation);
    return;
  }
  std::vector<const OperationSpec*> specs;
  specs.reserve(operations.size());
  for (const Operation* operation : operations) specs.push_back(&operation->spec);
  context_.announce(specs);
}

void NegotiatedRunner::leave(const std::vector<Operation*>& operations) {
  context_.leaves = true;
  leave_deadline_ = deadline_after(kLeaveTimeout);
  dispatch(operations);
  if (schedule_.active()) schedule_.request_end(ScheduleLock::Cause::leaving);
}

const std::optional<Status>& NegotiatedRunner::end_reason() const { return end_reason_; }

bool NegotiatedRunner::agreed_to_end() const { return agreed_to_end_; }

void NegotiatedRunner::apply(ResponseList message) {
  for (const std::string& warning : message.warnings) record_stall(warning);
  if (message.knobs) {
    context_.knobs = *message.knobs;
    context_.executor->tune(context_.knobs);
  }
  std::vector<std::shared_ptr<const Response>> executes;
  for (auto& entry : message.entries) {
    if (entry.response && entry.response->kind == Response::Kind::lock) {
      perform(executes);
      schedule_.lock(entry.response->schedule, message.number);
      continue;
    }
    const bool is_new = entry.response.has_value();
    auto response = context_.negotiator.cache().resolve(std::move(entry));
    if (response->kind != Response::Kind::execute) {
      perform(executes);
      apply_response(*response);
      if (end_reason_) return;
      continue;
    }
    if (is_new) {
      const Operation* own = context_.pending.find(response->spec.name);
      context_.negotiator.cache().store(response, own != nullptr ? &own->spec : nullptr);
    }
    executes.push_back(std::move(response));
  }
  perform(executes);
}

void NegotiatedRunner::record_stall(const std::string& warning) {
  const bool is_said_by_hvdrun = context_.dependencies.config.diagnosis.flight_recorder >= 0;
  const bool says = context_.dependencies.topology.rank == 0 && !is_said_by_hvdrun;
  context_.dependencies.log.write(says ? LogLevel::warning : LogLevel::debug, warning);
  context_.dependencies.flight.stalled(warning);
  stalled_ = true;
  operations_at_stall_ = context_.dependencies.metrics.operations.value();
}

void NegotiatedRunner::record_recovery() {
  if (!stalled_ || !context_.pending.empty()) return;
  if (context_.dependencies.metrics.operations.value() == operations_at_stall_) return;
  context_.dependencies.flight.recovered();
  stalled_ = false;
}

void NegotiatedRunner::perform(std::vector<std::shared_ptr<const Response>>& executes) {
  if (executes.empty()) return;
  context_.negotiator.flush_messages(context_.dependencies.config.timeouts.silence_limit());
  std::vector<Bucket::Item> ready;
  ready.reserve(executes.size());
  for (const auto& response : executes) {
    ready.push_back({.response = response.get(), .own = context_.pending.claim(response->spec.name)});
  }
  std::vector<Bucket> buckets = plan_buckets(ready, context_.knobs.fusion_threshold_bytes);
  context_.executor->run(buckets, context_.pending, context_.driving_thread);
  if (tuner_) tune(executes);
  executes.clear();
}

// Schedules are not locked meanwhile: each trial would have to break the lock, and learn again.
void NegotiatedRunner::tune(const std::vector<std::shared_ptr<const Response>>& executed) {
  const TimePoint now = Clock::now();
  for (const auto& response : executed) {
    if (const auto knobs = tuner_->performed(response->spec, now)) context_.negotiator.tune(*knobs);
  }
  if (!tuner_->finished()) return;
  tuner_.reset();
  if (can_lock(context_.dependencies, *context_.executor)) context_.negotiator.allow_locks();
}

void NegotiatedRunner::apply_response(const Response& response) {
  const EngineDependencies& dependencies = context_.dependencies;
  switch (response.kind) {
    case Response::Kind::execute:
    case Response::Kind::lock: return;
    case Response::Kind::error: {
      const std::string& name = response.spec.name;
      if (!std::ranges::binary_search(response.ranks, dependencies.topology.rank)) return;
      if (name == kJoinName) dependencies.names.join_ended(false);
      dependencies.timeline.end(name);
      if (Operation* own = context_.pending.find(name)) context_.pending.end(*own, response.status);
      return;
    }
    case Response::Kind::all_joined:
      if (response.rank >= dependencies.topology.size) {
        throw Internal("the coordinator's response names rank " + std::to_string(response.rank) + " of " +
                       std::to_string(dependencies.topology.size) + " as the last to join");
      }
      dependencies.names.join_ended(true);
      if (Operation* join = context_.pending.find(kJoinName)) {
        dependencies.timeline.end(kJoinName);
        join->completion.last_joined = dependencies.topology.job_rank_of(response.rank);
        context_.pending.end(*join, Status());
      }
      return;
    case Response::Kind::shut_down:
      schedule_.end();
      agreed_to_end_ = true;
      end_reason_ = with_culprit(response.status, response.rank, dependencies.topology);
      return;
  }
}

// While a schedule is locked the data plane waits for the other ranks.
bool NegotiatedRunner::waits_for_responses() const { return !schedule_.active() && !context_.pending.empty(); }

Deadline NegotiatedRunner::check_response_timeout() {
  const TimePoint now = Clock::now();
  if (now >= leave_deadline_) {
    end_reason_ = Status(StatusCode::shut_down, "this rank has shut hvd down; the coordinator did not answer");
  }
  if (!context_.negotiator.has_response_timeout() || !waits_for_responses()) return leave_deadline_;
  const Deadline deadline = context_.negotiator.response_deadline(context_.pending.find(kJoinName) != nullptr);
  if (now >= deadline && !end_reason_) throw Error(context_.negotiator.silence_of_parent(now));
  return std::min(deadline, leave_deadline_);
}

}  // namespace hvd
