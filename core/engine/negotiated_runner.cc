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
  const int culprit = known ? topology.job_ranks[static_cast<std::size_t>(leaving)] : kNobody;
  return Status(status.code(), status.message(), culprit);
}

}  // namespace

bool tunes(const EngineParts& parts) {
  return parts.config.autotune.enabled && parts.topology.rank == 0 && parts.topology.size > 1 &&
         parts.set.id == kGlobalProcessSet;
}

bool can_lock(const EngineParts& parts, const Executor& executor) {
  return parts.config.negotiation.schedule_lock && executor.can_be_asked();
}

NegotiatedRunner::NegotiatedRunner(EngineContext& context, ScheduleRunner& schedule)
    : context_(context),
      schedule_(schedule),
      tuner_(tunes(context.parts) ? std::make_unique<Tuner>(context.parts.config, context.parts.log) : nullptr) {}

bool NegotiatedRunner::apply_answers() {
  bool any = false;
  while (!end_reason_) {
    auto message = context_.negotiator.next(Clock::now());
    if (!message) break;
    apply(std::move(*message));
    any = true;
  }
  if (any && context_.negotiator.limits_answers()) context_.negotiator.performed(Clock::now(), waits_for_answers());
  return any;
}

void NegotiatedRunner::file(const std::vector<Operation*>& operations) {
  if (schedule_.active()) {
    for (Operation* operation : operations) schedule_.file(*operation);
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
  file(operations);
  if (schedule_.active()) schedule_.break_up(ScheduleLock::Cause::leaving);
}

void NegotiatedRunner::apply(CoordinatorMessage message) {
  for (const std::string& warning : message.warnings) show_stall(warning);
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
      finish(*response);
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

void NegotiatedRunner::show_stall(const std::string& warning) {
  const bool is_said_by_hvdrun = context_.parts.config.diagnosis.flight_recorder >= 0;
  const bool says = context_.parts.topology.rank == 0 && !is_said_by_hvdrun;
  context_.parts.log.write(says ? LogLevel::warning : LogLevel::debug, warning);
  context_.parts.flight.stalled(warning);
  stalled_ = true;
  operations_at_stall_ = context_.parts.metrics.operations.value();
}

void NegotiatedRunner::show_recovery() {
  if (!stalled_ || !context_.pending.empty()) return;
  if (context_.parts.metrics.operations.value() == operations_at_stall_) return;
  context_.parts.flight.recovered();
  stalled_ = false;
}

void NegotiatedRunner::perform(std::vector<std::shared_ptr<const Response>>& executes) {
  if (executes.empty()) return;
  context_.negotiator.settle(context_.parts.config.timeouts.silence_limit());
  std::vector<Bucket::Item> ready;
  ready.reserve(executes.size());
  for (const auto& response : executes) {
    ready.push_back({.response = response.get(), .own = context_.pending.claim(response->spec.name)});
  }
  std::vector<Bucket> buckets = plan_buckets(ready, context_.knobs.fusion_threshold_bytes);
  context_.executor->run(buckets, context_.pending, context_.waiter);
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
  if (can_lock(context_.parts, *context_.executor)) context_.negotiator.allow_locks();
}

void NegotiatedRunner::finish(const Response& response) {
  const EngineParts& parts = context_.parts;
  switch (response.kind) {
    case Response::Kind::execute:
    case Response::Kind::lock: return;
    case Response::Kind::error: {
      const std::string& name = response.spec.name;
      if (!std::ranges::binary_search(response.ranks, parts.topology.rank)) return;
      if (name == kJoinName) parts.names.join_ended(false);
      parts.timeline.end(name);
      if (Operation* own = context_.pending.find(name)) context_.pending.end(*own, response.status);
      return;
    }
    case Response::Kind::all_joined:
      if (response.rank >= parts.topology.size) {
        throw Internal("the coordinator's answer names rank " + std::to_string(response.rank) + " of " +
                       std::to_string(parts.topology.size) + " as the last to join");
      }
      parts.names.join_ended(true);
      if (Operation* join = context_.pending.find(kJoinName)) {
        parts.timeline.end(kJoinName);
        join->completion.last_joined = parts.topology.job_ranks[static_cast<std::size_t>(response.rank)];
        context_.pending.end(*join, Status());
      }
      return;
    case Response::Kind::shut_down:
      schedule_.end();
      agreed_to_end_ = true;
      end_reason_ = with_culprit(response.status, response.rank, parts.topology);
      return;
  }
}

// While a schedule is locked the data plane waits for the other ranks.
bool NegotiatedRunner::waits_for_answers() const { return !schedule_.active() && !context_.pending.empty(); }

Deadline NegotiatedRunner::look_for_answer() {
  const TimePoint now = Clock::now();
  if (now >= leave_deadline_) {
    end_reason_ = Status(StatusCode::shut_down, "this rank has shut hvd down; the coordinator did not answer");
  }
  if (!context_.negotiator.limits_answers() || !waits_for_answers()) return leave_deadline_;
  const Deadline deadline = context_.negotiator.answer_deadline(context_.pending.find(kJoinName) != nullptr);
  if (now >= deadline && !end_reason_) throw Error(context_.negotiator.silence_of_parent(now));
  return std::min(deadline, leave_deadline_);
}

}  // namespace hvd
