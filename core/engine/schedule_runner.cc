#include "core/engine/schedule_runner.h"

#include <algorithm>
#include <string>
#include <vector>

#include "core/base/error.h"

namespace hvd {

namespace {

// How many times as long the engine thread waits.
constexpr int kThreadGracePeriod = 50;
// How long a rank waits for an operation that the schedule expects first, while a caller waits for a later one.
constexpr Duration kCallerGracePeriod = std::chrono::microseconds(50);
// The same while no thread waits yet.
constexpr Duration kProgramGracePeriod = std::chrono::seconds(1);
// The longest time between two checks whether a thread waits.
constexpr Duration kMaxCheckInterval = std::chrono::milliseconds(10);

const char* cause_text(ScheduleLock::Cause cause) {
  switch (cause) {
    case ScheduleLock::Cause::none: break;
    case ScheduleLock::Cause::new_operation: return "an operation that is not in it, or not like this, was submitted";
    case ScheduleLock::Cause::order: return "a caller waits for an operation while an earlier one was not submitted";
    case ScheduleLock::Cause::late: return "other ranks did not come";
    case ScheduleLock::Cause::leaving: return "this rank leaves";
    case ScheduleLock::Cause::other_rank: return "another rank has asked for it";
  }
  return "no cause";
}

// The stall limit counts only once the schedule has been given up, so this leaves most of it.
int most_late_calls(const Config::Timeouts& timeouts) {
  if (!timeouts.gives_up_stalls()) return kThreadGracePeriod;
  const auto calls = timeouts.stall_limit / 4 / ScheduleRunner::kLateTimeout;
  return static_cast<int>(std::clamp<Duration::rep>(calls, 1, kThreadGracePeriod));
}

}  // namespace

ScheduleRunner::ScheduleRunner(EngineContext& context)
    : context_(context), most_late_calls_(most_late_calls(context.dependencies.config.timeouts)) {
  context_.executor->set_late_callback(kLateTimeout, [this] { return on_late_ranks(); });
}

bool ScheduleRunner::active() const { return lock_.active(); }

std::size_t ScheduleRunner::missing() const { return lock_.missing(); }

void ScheduleRunner::lock(const Schedule& schedule, std::uint64_t number) {
  context_.negotiator.flush_messages(context_.dependencies.config.timeouts.silence_limit());
  staged_ = StagedSchedule(schedule, context_);
  lock_.propose(number, staged_.slots());
  context_.pending.for_each([this](Operation& operation) { add(operation); });
  if (context_.leaves) request_end(ScheduleLock::Cause::leaving);
  record_state();
}

// For the set of all ranks; other sets have their own locks.
void ScheduleRunner::record_state() {
  if (context_.dependencies.set.id != kGlobalProcessSet) return;
  context_.dependencies.metrics.lock_state.set(static_cast<std::uint64_t>(lock_.state()));
  context_.dependencies.metrics.locked_steps.set(lock_.steps_of_all_locks());
}

// A slot's content is fixed as long as the lock lasts: a repeated operation is not looked up again.
void ScheduleRunner::add(Operation& operation) {
  if (!find_slot(operation)) return request_end(ScheduleLock::Cause::new_operation);
  if (!lock_.submitted(operation.scheduled.slot)) return request_end(ScheduleLock::Cause::new_operation);
  staged_.enter(operation.scheduled.slot, operation);
}

bool ScheduleRunner::follow(const Completion* awaited) {
  bool progressed = false;
  while (lock_.active() && (awaited == nullptr || !awaited->done())) {
    const ScheduleLock::Action action = lock_.next(asked_to_break());
    if (action.kind == ScheduleLock::Action::Kind::wait) break;
    progressed = true;
    if (action.kind == ScheduleLock::Action::Kind::perform && perform(staged_.stage(action.stage))) {
      lock_.performed();
      record_state();
    } else {
      if (action.kind == ScheduleLock::Action::Kind::decline) context_.executor->decline();
      abandon_lock();
    }
  }
  return progressed;
}

// False if another rank has declined. Ranks that have entered the first bucket have all operations of the others.
bool ScheduleRunner::perform(Stage& stage) {
  late_calls_ = 0;
  return context_.executor->run(stage, context_.pending, context_.driving_thread, EntryMode::asking);
}

bool ScheduleRunner::perform_directly(DirectCall& direct, const TensorMemory& memory, std::exception_ptr& failure) {
  const auto started = time_.started();
  FlightEntry recorded = context_.recorder.performing(direct.described);
  try {
    if (!context_.executor->run(direct, memory)) {
      recorded.forget();
      abandon_lock();
      return false;
    }
    recorded.done();
  } catch (...) {
    const StatusCode code = current_exception_status().code();
    recorded.ended(code);
    if (code != StatusCode::unsupported && code != StatusCode::mismatch) throw;
    failure = std::current_exception();
  }
  context_.recorder.performed_directly();
  performed_directly(started);
  return true;
}

void ScheduleRunner::performed_directly(std::optional<TimePoint> started) {
  lock_.performed();
  record_state();
  blocked_since_.reset();
  DirectCallTime::ended(started, context_.dependencies.metrics);
}

void DirectCallTime::ended(std::optional<TimePoint> started, Metrics& metrics) {
  if (!started) return;
  const Duration time = (Clock::now() - *started) * kMeasured;
  for (Counter* counter : {&metrics.collective_time, &metrics.communication_time, &metrics.exposed_time}) {
    counter->add(time);
  }
}

// ---- Posted operations

bool ScheduleRunner::post(DirectCall& direct, Operation& operation) {
  late_calls_ = 0;
  if (!context_.executor->post(direct, operation.memory.tensors.front())) return false;
  operation.mark_resubmitted();
  posted_.reset(&operation);
  direct_posted_ = &direct;
  operation.flight = context_.recorder.performing(direct.described);
  context_.recorder.performed_directly();
  operation.set_caller_completes(true);
  return true;
}

bool ScheduleRunner::has_posted() const { return posted_ != nullptr; }

void ScheduleRunner::wait_posted() {
  if (posted_ == nullptr) return;
  posted_->set_caller_completes(false);
  const auto started = time_.started();
  Status status;
  try {
    if (!context_.executor->wait_posted(*direct_posted_, context_.driving_thread)) {
      posted_->flight.waits_again();
      context_.insert(std::move(posted_));
      return abandon_lock();
    }
    posted_->flight.done();
  } catch (...) {
    status = current_exception_status();
    if (status.code() != StatusCode::unsupported && status.code() != StatusCode::mismatch) throw;
    posted_->flight.ended(status.code());
  }
  performed_directly(started);
  const EngineReference ended = std::move(posted_);
  if (ended->end_recorded(status)) ended->completion.wake();
}

void ScheduleRunner::give_up_posted() {
  if (posted_ == nullptr) return;
  posted_->set_caller_completes(false);
  context_.pending.insert(std::move(posted_));
}

// The other ranks have not come to the current stage. A caller has a deadline, and must handle signals.
bool ScheduleRunner::on_late_ranks() {
  if (context_.driving_thread == DrivingThread::engine && ++late_calls_ < most_late_calls_) return true;
  request_end(ScheduleLock::Cause::late);
  return false;
}

// The other ranks may be idle, and must be notified that they are to decline.
void ScheduleRunner::request_end(ScheduleLock::Cause cause) {
  if (lock_.state() == ScheduleLock::State::breaking) return;
  lock_.request_end(cause);
  context_.dependencies.channel.request_break(lock_.number());
}

// Everything pending is negotiated again.
void ScheduleRunner::abandon_lock() {
  const auto cause = lock_.cause() == ScheduleLock::Cause::none ? ScheduleLock::Cause::other_rank : lock_.cause();
  context_.dependencies.metrics.breaks[static_cast<std::size_t>(cause)].add();
  context_.dependencies.log.debug("the schedule is given up after " + std::to_string(lock_.steps()) +
                                  " steps: " + cause_text(cause));
  lock_.ended();
  record_state();
  context_.negotiator.unlock(lock_.steps());
  std::vector<const OperationSpec*> specs;
  context_.pending.for_each([&](const Operation& operation) { specs.push_back(&operation.spec); });
  context_.announce(specs);
}

void ScheduleRunner::end() {
  if (!lock_.active()) return;
  context_.executor->decline();
  lock_.ended();
}

bool ScheduleRunner::awaited() const {
  if (!blocked_since_) return false;
  bool any = false;
  context_.pending.for_each([&](const Operation& operation) { any = any || operation.completion.awaited(); });
  return any;
}

void ScheduleRunner::made_progress() { blocked_since_.reset(); }

Deadline ScheduleRunner::check_blocked_callers(bool awaited) {
  if (!lock_.active() || context_.pending.empty()) return Deadline::max();
  const TimePoint now = Clock::now();
  if (!blocked_since_) blocked_since_ = now;
  const Duration blocked = now - *blocked_since_;
  if (blocked >= (awaited ? kCallerGracePeriod : kProgramGracePeriod)) {
    request_end(ScheduleLock::Cause::order);
    return now;
  }
  return now + std::clamp(blocked, kCallerGracePeriod, kMaxCheckInterval);
}

}  // namespace hvd
