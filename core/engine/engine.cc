#include "core/engine/engine.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/floating_point.h"
#include "core/base/futex.h"
#include "core/base/process.h"
#include "core/execution/bucket_planner.h"

namespace hvd {

namespace {

// How long a rank whose data plane failed waits for the control plane to report the culprit: the peer whose connection
// broke may itself be leaving because of another rank.
constexpr Duration kVerdictTimeout = std::chrono::seconds(1);

// How long a leaving rank waits for the coordinator's acknowledgement.
constexpr Duration kLeaveTimeout = std::chrono::seconds(5);

// In a locked schedule: how long a caller that has begun a collective waits for the other ranks before it breaks the
// lock, and how many times as long the engine thread does; and how long a rank waits for an operation that the schedule
// expects first while a caller, or no thread yet, waits for a later one.
constexpr Duration kLateTimeout = std::chrono::milliseconds(100);
constexpr int kThreadGracePeriod = 50;
constexpr Duration kCallerGracePeriod = std::chrono::microseconds(50);
constexpr Duration kProgramGracePeriod = std::chrono::seconds(1);
constexpr Duration kLongestLook = std::chrono::milliseconds(10);

// One direct call in so many is timed, and represents the others: reading the clock costs as much as the rest of the
// call. A prime number: the length of repeating steps is seldom a multiple of it.
constexpr unsigned kTimed = 17;

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

// The first rank to leave is the cause of the run's end.
Status with_culprit(const Status& status, int leaving, const Topology& topology) {
  const bool known = leaving >= 0 && leaving < topology.size;
  const int culprit = known ? topology.job_ranks[static_cast<std::size_t>(leaving)] : kNobody;
  return Status(status.code(), status.message(), culprit);
}

bool locks(const Engine::Parts& parts, const Executor& executor) {
  return parts.config.schedule_lock && executor.can_be_asked();
}

// The stall limit counts only once the schedule has been given up, so this leaves most of it.
int most_late_calls(const Config& config) {
  if (!config.gives_up_stalls()) return kThreadGracePeriod;
  return static_cast<int>(std::clamp<Duration::rep>(config.stall_limit / 4 / kLateTimeout, 1, kThreadGracePeriod));
}

// Only rank 0 tunes; its result holds for all ranks.
bool tunes(const Engine::Parts& parts) {
  return parts.config.autotune && parts.topology.rank == 0 && parts.topology.size > 1 &&
         parts.set.id == kGlobalProcessSet;
}

}  // namespace

Engine::Engine(const Parts& parts, std::unique_ptr<Executor> executor)
    : parts_(parts),
      negotiator_(parts.topology, parts.config, parts.channel, parts.metrics, parts.timeline, parts.set.id,
                  locks(parts, *executor) && !tunes(parts)),
      executor_(std::move(executor)),
      knobs_(knobs_of(parts.config)),
      tuner_(tunes(parts) ? std::make_unique<Tuner>(parts.config, parts.log) : nullptr),
      pending_(parts.metrics),
      most_late_calls_(most_late_calls(parts.config)),
      caller_wait_(wait_policy_for(parts.topology.local_size, parts.topology.local_cpus)),
      thread_wait_(wait_policy_for(parts.topology.local_size, parts.topology.local_cpus)) {
  executor_->set_late_callback(kLateTimeout, [this] { return wait_on(); });
  thread_ = start_thread(kEngineThread, [this] { run_thread(); });
}

Engine::~Engine() {
  leave();
  join();
}

Status Engine::submit(EnginesSubmission& submission) {
  record(*submission);
  FlightEntry recorded = submission->flight;
  const std::size_t waiting = queue_.push(submission);
  if (waiting == 0) {
    Status status = reason();
    record_end(status);
    recorded.ended(status.code());
    return status;
  }
  std::size_t wanted = wake_at_.load(std::memory_order_seq_cst);
  // Rings once per pause: the driving thread then checks the queue, and sets anew what ends the next pause. If it is
  // setting that at this moment, it sees this submission.
  if (wanted != 0 && waiting >= wanted && wake_at_.compare_exchange_strong(wanted, 0)) parts_.channel.wake();
  return {};
}

void Engine::record(Submission& submission) {
  const std::uint64_t before = submitted_.load(std::memory_order_relaxed);
  submitted_.store(before + 1, std::memory_order_relaxed);
  const std::uint64_t directly = performed_directly_.load(std::memory_order_relaxed);
  submission.flight = parts_.flight.submitted(submission.described, before + directly + 1);
}

void Engine::leave() {
  leaving_.store(true, std::memory_order_release);
  parts_.channel.wake();
}

void Engine::join() {
  if (thread_.joinable()) thread_.join();
}

// Runs `body` as the driving thread; its exceptions end the run. False if the run has ended.
bool Engine::drive(const auto& body) {
  try {
    if (!ended_) body();
  } catch (...) {
    const Status own = current_exception_status();
    try {
      end(verdict(own));
    } catch (...) {
      end(own);
    }
  }
  return !ended_;
}

void Engine::run_thread() {
  const DefaultFloatingPoint floating_point;
  for (;;) {
    std::optional<Pause> pause;
    {
      std::lock_guard driver(driver_);
      if (!drive([&] { pause = run_iteration(); })) return;
    }
    if (pause) parts_.channel.wait(pause->heard, pause->deadline, pause->eager ? &thread_wait_ : nullptr);
  }
}

bool Engine::run(EnginesSubmission& submission, std::unique_lock<std::mutex>& submitting, Deadline deadline) {
  const std::unique_lock driver(driver_, std::try_to_lock);
  if (!driver || ended_) return false;
  const DefaultFloatingPoint floating_point;
  Work& work = submission->work;  // the caller holds a reference
  work.set_awaited();
  caller_drives_ = true;
  callers_work_ = &work;
  drive([&] {
    take_submissions();
    record(*submission);
    Submission& inserted = insert(std::move(submission));
    submitting.unlock();
    file({&inserted});
    while (!ended_ && !work.done() && Clock::now() < deadline) {
      const auto pause = run_iteration();
      if (!pause || work.done()) continue;
      parts_.channel.wait(pause->heard, std::min(pause->deadline, deadline), &caller_wait_);
    }
  });
  caller_drives_ = false;
  callers_work_ = nullptr;
  // The engine thread may have gone to sleep when nothing was pending: from now on it must be notified of each
  // submission again, and of what is left.
  wake_at_.store(1, std::memory_order_seq_cst);
  const bool on_device = work.done() && work.on_device != nullptr;  // must be watched
  if (!pending_.empty() || queue_.size() > 0 || on_device) parts_.channel.wake();
  return !submitting.owns_lock();
}

bool Engine::run(const DirectCall& direct) {
  const std::unique_lock driver(driver_, std::try_to_lock);
  if (!driver || ended_ || !queue_.empty() || parts_.timeline.active()) return false;
  const auto stage = lock_.single(parts_.channel.break_requested() >= lock_.epoch());
  if (!stage || !means(direct, prepared_[*stage])) return false;
  const DefaultFloatingPoint floating_point;
  const std::uint64_t performed = lock_.performed_stages();
  caller_drives_ = true;
  drive([&] {
    parts_.abort.check();
    perform_directly(*stage, direct);
  });
  caller_drives_ = false;
  if (!pending_.empty()) parts_.channel.wake();  // its stage may be the next one
  return lock_.performed_stages() != performed;
}

bool Engine::means(const DirectCall& direct, const PreparedCall& prepared) const {
  if (!prepared.fits(direct)) return false;
  if (!direct.name.empty()) return prepared.request->name == direct.name;
  return prepared.request->name == unnamed_ && parts_.names.changes_of_numbers() == unnamed_since_;
}

void Engine::perform_directly(std::size_t stage, const DirectCall& direct) {
  const bool timed = ++direct_calls_ % kTimed == 0;
  const TimePoint started = timed ? Clock::now() : TimePoint();
  const std::uint64_t before = performed_directly_.load(std::memory_order_relaxed);
  const std::uint64_t submitted = submitted_.load(std::memory_order_relaxed);
  FlightEntry recorded = parts_.flight.performing(prepared_[stage].described, before + submitted + 1);
  bool performed = false;
  try {
    performed = executor_->run(prepared_[stage], direct);
  } catch (...) {
    recorded.ended(current_exception_status().code());
    throw;
  }
  if (!performed) {
    recorded.forget();
    return leave_schedule();
  }
  recorded.done();
  performed_directly_.store(before + 1, std::memory_order_relaxed);
  lock_.performed();
  show_state();
  blocked_since_.reset();
  if (!timed) return;
  const Duration time = (Clock::now() - started) * kTimed;
  for (Counter* counter :
       {&parts_.metrics.collective_time, &parts_.metrics.communication_time, &parts_.metrics.exposed_time}) {
    counter->add(time);
  }
}

// One iteration of the loop. Returns nothing if it made progress, else what to wait for.
std::optional<Engine::Pause> Engine::run_iteration() {
  parts_.abort.check();
  const Deadline next_look = executor_->watch(Clock::now());
  bool progressed = false;
  const bool was_awaited = blocked_since_ && awaited();  // before the queue is checked
  // Messages first: the channel remembers this check, so that a later submission ends the pause.
  while (!ended_) {
    auto message = negotiator_.next(Clock::now());
    if (!message) break;
    apply(std::move(*message));
    progressed = true;
  }
  if (progressed && negotiator_.limits_answers()) negotiator_.performed(Clock::now(), waits_for_answers());
  if (!ended_) progressed = take_submissions() || progressed;
  if (!ended_) progressed = follow_schedule() || progressed;
  if (stalled_) show_recovery();
  if (progressed) blocked_since_.reset();
  if (ended_ || progressed) return std::nullopt;
  if (Clock::now() >= leave_deadline_) {
    end(Status(StatusCode::shut_down, "this rank has shut hvd down; the coordinator did not answer"));
    return std::nullopt;
  }
  const Deadline deadline = std::min({negotiator_.next_deadline(), leave_deadline_, look_for_answer(),
                                      look_for_blocked_callers(was_awaited), next_look});
  if (!may_pause()) return std::nullopt;
  return Pause{.heard = parts_.channel.heard(), .deadline = deadline, .eager = !lock_.active() && !pending_.empty()};
}

// While a stage of the schedule waits for operations, the pause ends once all of them are queued, not with each of
// them. There is a deadline then, as something is pending. Submitters read wake_at_ after queueing: either they see the
// value set here, or this thread sees their submissions.
bool Engine::may_pause() {
  const std::size_t wanted = lock_.active() && !pending_.empty() ? lock_.missing() : 1;
  wake_at_.store(wanted, std::memory_order_seq_cst);
  return queue_.size() < wanted;
}

// Nothing that the warning was about is pending any more, and something has been performed since.
void Engine::show_recovery() {
  if (!pending_.empty() || parts_.metrics.operations.value() == operations_at_stall_) return;
  parts_.flight.recovered();
  stalled_ = false;
}

Submission& Engine::insert(EnginesSubmission submission) {
  Submission& inserted = pending_.insert(std::move(submission));
  const Request& request = inserted.request;
  if (parts_.timeline.active()) parts_.timeline.begin(request.name, negotiation_activity(request));
  return inserted;
}

bool Engine::take_submissions() {
  queue_.take(taken_);
  const bool leave_now = leaving_.load(std::memory_order_acquire) && !left_;
  if (leave_now) parts_.abort.check();  // a rank that has failed before it leaves must be reported as failed
  if (taken_.empty() && !leave_now) return false;
  filed_.clear();
  for (EnginesSubmission& submission : taken_) filed_.push_back(&insert(std::move(submission)));
  if (leave_now) {
    left_ = true;
    leave_deadline_ = deadline_after(kLeaveTimeout);
  }
  file(filed_);
  if (leave_now && lock_.active()) break_up(ScheduleLock::Cause::leaving);
  return true;
}

// Sends new submissions, and whether this rank leaves, to the coordinator, or enters them into the schedule.
void Engine::file(const std::vector<Submission*>& submissions) {
  if (lock_.active()) {
    for (Submission* submission : submissions) file_in_schedule(*submission);
    return;
  }
  std::vector<const Request*> requests;
  requests.reserve(submissions.size());
  for (const Submission* submission : submissions) requests.push_back(&submission->request);
  announce(requests);
}

void Engine::announce(const std::vector<const Request*>& requests) {
  if (!requests.empty() || left_) negotiator_.announce(requests, left_);
}

void Engine::apply(CoordinatorMessage message) {
  for (const std::string& notice : message.notices) {
    const bool is_said_by_hvdrun = parts_.config.flight_recorder >= 0;
    const bool says = parts_.topology.rank == 0 && !is_said_by_hvdrun;
    parts_.log.write(says ? LogLevel::warning : LogLevel::debug, notice);
    parts_.flight.stalled(notice);
    stalled_ = true;
    operations_at_stall_ = parts_.metrics.operations.value();
  }
  if (message.knobs) {
    knobs_ = *message.knobs;
    executor_->tune(knobs_);
  }
  std::vector<std::shared_ptr<const Response>> executes;
  for (auto& entry : message.entries) {
    if (entry.response && entry.response->kind == Response::Kind::lock) {
      perform(executes);
      lock(entry.response->schedule, message.number);
      continue;
    }
    const bool is_new = entry.response.has_value();
    auto response = negotiator_.resolve(std::move(entry));
    if (response->kind != Response::Kind::execute) {
      perform(executes);
      finish(*response);
      if (ended_) return;
      continue;
    }
    if (is_new) {
      const Submission* own = pending_.find(response->request.name);
      negotiator_.remember(response, own != nullptr ? &own->request : nullptr);
    }
    executes.push_back(std::move(response));
  }
  perform(executes);
}

void Engine::perform(std::vector<std::shared_ptr<const Response>>& executes) {
  if (executes.empty()) return;
  negotiator_.settle(parts_.config.silence_limit());
  std::vector<const Response*> pointers;
  for (const auto& response : executes) pointers.push_back(response.get());
  for (const Bucket& bucket : plan_buckets(pointers, knobs_.fusion_threshold_bytes)) {
    executor_->run(bucket, pending_);
  }
  if (tuner_) tune(executes);
  executes.clear();
}

// Schedules are not locked meanwhile: each trial would have to break the lock, and learn again.
void Engine::tune(const std::vector<std::shared_ptr<const Response>>& executed) {
  const TimePoint now = Clock::now();
  for (const auto& response : executed) {
    if (const auto knobs = tuner_->performed(*response, now)) negotiator_.tune(*knobs);
  }
  if (!tuner_->finished()) return;
  tuner_.reset();
  if (locks(parts_, *executor_)) negotiator_.allow_locks();
}

// ---- The locked schedule

void Engine::lock(const Schedule& schedule, std::uint64_t epoch) {
  negotiator_.settle(parts_.config.silence_limit());
  scheduled_.clear();
  std::vector<std::vector<const Response*>> groups;
  for (const auto& slots : schedule) {
    groups.emplace_back();
    for (const std::uint32_t slot : slots) {
      groups.back().push_back(scheduled_.emplace_back(negotiator_.cached(slot)).get());
    }
  }
  stages_ = plan_stages(groups, knobs_.fusion_threshold_bytes);
  std::vector<std::vector<std::uint32_t>> stage_slots;
  for (const Stage& stage : stages_) {
    stage_slots.emplace_back();
    for (const Response* response : responses_of(stage)) stage_slots.back().push_back(response->slot);
  }
  lock_.propose(epoch, stage_slots);
  prepared_.clear();
  for (const Stage& stage : stages_) {
    prepared_.push_back(stage.size() == 1 ? executor_->prepare(stage.front()) : PreparedCall());
  }
  unnamed_since_ = parts_.names.changes_of_numbers();
  unnamed_ = parts_.names.name_of_synchronous();
  pending_.for_each([this](Submission& submission) { file_in_schedule(submission); });
  if (left_) break_up(ScheduleLock::Cause::leaving);
  show_state();
}

// For the set of all ranks; other sets have their own locks.
void Engine::show_state() {
  if (parts_.set.id != kGlobalProcessSet) return;
  parts_.metrics.lock_state.set(static_cast<std::uint64_t>(lock_.state()));
  parts_.metrics.locked_steps.set(lock_.steps_of_all_locks());
}

// A slot's content is fixed as long as the lock lasts: a repeated submission is not looked up again.
void Engine::file_in_schedule(Submission& submission) {
  if (submission.scheduled_in != lock_.epoch()) {
    const auto slot = negotiator_.slot_of(submission.request);
    if (!slot) return break_up(ScheduleLock::Cause::new_operation);
    submission.schedule_slot = *slot;
    submission.scheduled_in = lock_.epoch();
  }
  if (!lock_.submitted(submission.schedule_slot)) break_up(ScheduleLock::Cause::new_operation);
}

// True if something has been performed or declined.
bool Engine::follow_schedule() {
  bool progressed = false;
  // A caller whose operation is done leaves the rest to the engine thread.
  while (lock_.active() && !ended_ && (callers_work_ == nullptr || !callers_work_->done())) {
    const ScheduleLock::Step step = lock_.next(parts_.channel.break_requested() >= lock_.epoch());
    if (step.kind == ScheduleLock::Step::Kind::wait) break;
    progressed = true;
    if (step.kind == ScheduleLock::Step::Kind::perform && perform_stage(stages_[step.stage])) {
      lock_.performed();
      show_state();
    } else {
      if (step.kind == ScheduleLock::Step::Kind::decline) executor_->decline();
      leave_schedule();
    }
  }
  return progressed;
}

// False if another rank has declined. Ranks that have entered the first bucket have all operations of the others.
bool Engine::perform_stage(const Stage& stage) {
  late_calls_ = 0;
  if (!executor_->run(stage.front(), pending_, Entry::asking)) return false;
  for (std::size_t i = 1; i < stage.size(); ++i) executor_->run(stage[i], pending_);
  return true;
}

// The other ranks have not come to the current stage. A caller has a deadline, and must handle signals.
bool Engine::wait_on() {
  if (!caller_drives_ && ++late_calls_ < most_late_calls_) return true;
  break_up(ScheduleLock::Cause::late);
  return false;
}

// The other ranks may be idle, and must be notified that they are to decline.
void Engine::break_up(ScheduleLock::Cause cause) {
  if (lock_.state() == ScheduleLock::State::breaking) return;
  lock_.break_up(cause);
  parts_.channel.request_break(lock_.epoch());
}

void Engine::leave_schedule() {
  const auto cause = lock_.cause() == ScheduleLock::Cause::none ? ScheduleLock::Cause::other_rank : lock_.cause();
  parts_.metrics.breaks[static_cast<std::size_t>(cause)].add();
  parts_.log.debug("the schedule is given up after " + std::to_string(lock_.steps()) + " steps: " + cause_text(cause));
  lock_.ended();
  show_state();
  negotiator_.unlock(lock_.steps());
  std::vector<const Request*> requests;
  pending_.for_each([&](const Submission& submission) { requests.push_back(&submission.request); });
  announce(requests);
}

bool Engine::awaited() const {
  bool any = false;
  pending_.for_each([&](const Submission& submission) { any = any || submission.work.awaited(); });
  return any;
}

// Breaks the lock if a thread waits for an operation while the schedule waits for an earlier one that this rank has not
// submitted: then the program has changed its order, and would block forever. Returns when to check again.
Deadline Engine::look_for_blocked_callers(bool awaited) {
  if (!lock_.active() || pending_.empty()) return Deadline::max();
  const TimePoint now = Clock::now();
  if (!blocked_since_) blocked_since_ = now;
  const Duration blocked = now - *blocked_since_;
  if (blocked >= (awaited ? kCallerGracePeriod : kProgramGracePeriod)) {
    break_up(ScheduleLock::Cause::order);
    return now;
  }
  return now + std::clamp(blocked, kCallerGracePeriod, kLongestLook);
}

// While a schedule is locked the data plane waits for the other ranks.
bool Engine::waits_for_answers() const { return !lock_.active() && !pending_.empty(); }

// Throws Timeout if the parent in the control tree has been silent for too long. Returns when to check again.
Deadline Engine::look_for_answer() const {
  if (!negotiator_.limits_answers() || !waits_for_answers()) return Deadline::max();
  const Deadline deadline = negotiator_.answer_deadline(pending_.find(kJoinName) != nullptr);
  const TimePoint now = Clock::now();
  if (now >= deadline) throw Error(negotiator_.silence_of_parent(now));
  return deadline;
}

void Engine::finish(const Response& response) {
  switch (response.kind) {
    case Response::Kind::execute:
    case Response::Kind::lock: return;
    case Response::Kind::error:
      if (std::binary_search(response.ranks.begin(), response.ranks.end(), parts_.topology.rank)) {
        if (response.request.name == kJoinName) parts_.names.join_ended(false);
        parts_.timeline.end(response.request.name);
        complete_pending(pending_, response.request.name, response.status);
      }
      return;
    case Response::Kind::all_joined:
      parts_.names.join_ended(true);
      if (Submission* join = pending_.find(kJoinName)) {
        parts_.timeline.end(kJoinName);
        join->work.last_joined = parts_.topology.job_ranks.at(static_cast<std::size_t>(response.last_joined));
        complete_pending(pending_, kJoinName, Status());
      }
      return;
    case Response::Kind::shut_down:
      // A leaving rank may have announced that before it knew of the schedule, and waits now for all to decline.
      if (lock_.active()) {
        executor_->decline();
        lock_.ended();
      }
      agreed_to_end_ = true;
      end(with_culprit(response.status, response.last_joined, parts_.topology));
      return;
  }
}

// The run failed here with `own`. Agrees with the other ranks on one reason.
Status Engine::verdict(const Status& own) {
  if (!parts_.abort.raised() && own.code() == StatusCode::peer_lost) {
    const Deadline deadline = deadline_after(kVerdictTimeout);
    while (!parts_.abort.raised() && Clock::now() < deadline) {
      while (parts_.channel.receive()) {
      }
      parts_.channel.wait(parts_.channel.heard(), deadline, nullptr);
    }
  }
  end_job(own, parts_.topology, parts_.abort, parts_.channel);
  return parts_.abort.reason();
}

void Engine::end(const Status& reason) {
  ended_ = true;
  {
    std::lock_guard lock(reason_mutex_);
    reason_ = reason;
  }
  if (parts_.on_end) parts_.on_end(reason);
  // That other ranks leave does not matter to a rank that has nothing pending.
  if (reason.code() != StatusCode::shut_down || !pending_.empty() || !queue_.empty()) record_end(reason);
  // Threads that wait for a device are notified before it is stopped: what it has written by then is void.
  if (parts_.abort.raised()) executor_->give_up(reason);
  // From now on submit() is refused, and finds the reason.
  for (EnginesSubmission& submission : queue_.close()) pending_.insert(std::move(submission));
  for (const EnginesSubmission& submission : pending_.remove_all()) {
    if (end_operation(*submission, reason)) submission->work.wake();
  }
}

// For the job, not for one of its process sets.
void Engine::record_end(const Status& reason) {
  const bool left_in_order = leaving_.load(std::memory_order_acquire) && reason.code() == StatusCode::shut_down;
  if (parts_.set.id == kGlobalProcessSet && !left_in_order) {
    parts_.flight.job_ended(reason, parts_.topology.job_rank());
  }
}

Status Engine::reason() const {
  std::lock_guard lock(reason_mutex_);
  return reason_;
}

}  // namespace hvd
