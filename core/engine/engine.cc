#include "core/engine/engine.h"

#include <algorithm>
#include <exception>

#include "core/base/error.h"
#include "core/base/floating_point.h"
#include "core/base/futex.h"
#include "core/base/process.h"

namespace hvd {

namespace {

// How long a rank whose data plane failed waits for the control plane to report the culprit: the peer whose connection
// broke may itself be leaving because of another rank.
constexpr Duration kReasonTimeout = std::chrono::seconds(1);

EngineContext make_context(const EngineDependencies& dependencies, std::unique_ptr<Executor> executor) {
  const bool locks = can_lock(dependencies, *executor) && !tunes(dependencies);
  return {.dependencies = dependencies,
          .executor = std::move(executor),
          .negotiator = Negotiator(dependencies.topology, dependencies.config, dependencies.channel,
                                   dependencies.metrics, dependencies.timeline, dependencies.set.id, locks),
          .pending = PendingOperations(dependencies.metrics),
          .recorder = OperationRecorder(dependencies.flight),
          .knobs = knobs_of(dependencies.config)};
}

// The run failed here with `own`. Agrees with the other ranks on one reason.
Status agree_on_reason(const EngineDependencies& dependencies, const Status& own) {
  AbortFlag& abort = dependencies.abort;
  ControlChannel& channel = dependencies.channel;
  if (!abort.raised() && own.code() == StatusCode::peer_lost) {
    const Deadline deadline = deadline_after(kReasonTimeout);
    while (!abort.raised() && Clock::now() < deadline) {
      while (channel.receive()) {
      }
      channel.wait(channel.doorbell_seen(), deadline, nullptr);
    }
  }
  end_job(own, dependencies.topology, abort, channel);
  return abort.reason();
}

// For the job, not for one of its process sets.
void record_end(const EngineDependencies& dependencies, const Status& reason, bool leaves) {
  const bool left_in_order = leaves && reason.code() == StatusCode::shut_down;
  if (dependencies.set.id == kGlobalProcessSet && !left_in_order)
    dependencies.flight.job_ended(reason, dependencies.topology.job_rank());
}

}  // namespace

void OperationRecorder::submitted(Operation& operation) {
  const std::uint64_t before = submitted_.load(std::memory_order_relaxed);
  submitted_.store(before + 1, std::memory_order_relaxed);
  const std::uint64_t directly = performed_directly_.load(std::memory_order_relaxed);
  operation.flight = flight_.submitted(operation.described, before + directly + 1);
}

Operation& EngineContext::insert(EngineReference operation) {
  Operation& inserted = pending.insert(std::move(operation));
  if (dependencies.timeline.active())
    dependencies.timeline.begin(inserted.spec.name, negotiation_activity(inserted.spec));
  return inserted;
}

void EngineContext::announce(const std::vector<const OperationSpec*>& specs) {
  if (!specs.empty() || leaves) negotiator.announce(specs, leaves);
}

Engine::Engine(const EngineDependencies& dependencies, std::unique_ptr<Executor> executor)
    : context_(make_context(dependencies, std::move(executor))),
      schedule_(context_),
      negotiated_(context_, schedule_),
      caller_wait_(caller_wait_policy_for(dependencies.topology.machine)),
      thread_wait_(wait_policy_for(dependencies.topology.machine)) {
  thread_ = start_thread(kEngineThread, [this] { run_thread(); });
}

Engine::~Engine() {
  leave();
  join();
}

Status Engine::submit(EngineReference& operation) {
  recorder().submitted(*operation);
  FlightEntry recorded = operation->flight;
  const std::size_t waiting = queue_.push(operation);
  if (waiting == 0) {
    Status status = reason();
    record_end(dependencies(), status, leaving_.load(std::memory_order_acquire));
    recorded.ended(status.code());
    return status;
  }
  std::size_t wanted = wake_at_.load(std::memory_order_seq_cst);
  // Rings once per pause: the driving thread then checks the queue, and sets anew what ends the next pause. If it is
  // setting that at this moment, it sees this operation.
  if (wanted != 0 && waiting >= wanted && wake_at_.compare_exchange_strong(wanted, 0)) dependencies().channel.wake();
  return {};
}

void Engine::leave() {
  leaving_.store(true, std::memory_order_release);
  dependencies().channel.wake();
}

void Engine::join() {
  if (thread_.joinable()) thread_.join();
}

bool Engine::all_know() const { return negotiated_.agreed_to_end() || dependencies().abort.raised(); }

const EngineDependencies& Engine::dependencies() const { return context_.dependencies; }

OperationRecorder& Engine::recorder() { return context_.recorder; }

// Runs `body` as the driving thread; its exceptions end the run. False if the run has ended.
bool Engine::drive(const auto& body) {
  driving_thread_.store(std::this_thread::get_id(), std::memory_order_relaxed);
  try {
    if (!ended_) body();
  } catch (...) {
    const Status own = current_exception_status();
    try {
      end(agree_on_reason(dependencies(), own));
    } catch (...) {
      end(own);
    }
  }
  driving_thread_.store({}, std::memory_order_relaxed);
  return !ended_;
}

void Engine::run_thread() {
  const DefaultFloatingPoint floating_point;
  for (;;) {
    std::optional<Pause> pause;
    {
      const MutexLock driver(driver_);
      if (!drive([&]() REQUIRES(driver_) { pause = run_iteration(); })) return;
    }
    if (pause)
      dependencies().channel.wait(pause->doorbell_seen, pause->deadline, pause->eager ? &thread_wait_ : nullptr);
  }
}

Status Engine::run(std::span<EngineReference> operations, MutexLock& submitting, Deadline deadline) {
  if (driver_.try_lock()) {
    const MutexLock driver(driver_, std::adopt_lock);
    if (!ended_) drive_until_done(operations, submitting, deadline);
  }
  for (EngineReference& operation : operations) {
    if (!operation) continue;
    if (Status status = submit(operation); !status.ok()) return status;
  }
  return {};
}

void Engine::drive_until_done(std::span<EngineReference> operations, MutexLock& submitting, Deadline deadline) {
  const DefaultFloatingPoint floating_point;
  driven_.clear();  // the caller holds references
  for (const EngineReference& operation : operations) {
    operation->completion.set_awaited();
    driven_.push_back(operation.get());
  }
  context_.driving_thread = DrivingThread::caller;
  drive([&]() REQUIRES(driver_) NO_THREAD_SAFETY_ANALYSIS {  // which does not see that `submitting` is locked
    // What has been posted is completed by run_iteration(): callbacks must find `submitting` unlocked.
    take_operations();
    for (EngineReference& operation : operations) {
      context_.recorder.submitted(*operation);
      context_.insert(std::move(operation));
    }
    submitting.unlock();
    negotiated_.dispatch(driven_);
    for (const Operation* operation : driven_) {
      awaited_ = &operation->completion;
      while (!ended_ && !awaited_->done() && Clock::now() < deadline) {
        const auto pause = run_iteration();
        if (!pause || awaited_->done()) continue;
        dependencies().channel.wait(pause->doorbell_seen, std::min(pause->deadline, deadline), &caller_wait_);
      }
    }
  });
  context_.driving_thread = DrivingThread::engine;
  awaited_ = nullptr;
  // The engine thread may have gone to sleep when nothing was pending: from now on it must be notified of each
  // operation again, and of what is left.
  wake_at_.store(1, std::memory_order_seq_cst);
  const auto to_watch = [](const Operation* operation) {
    return operation->completion.done() && operation->completion.on_device != nullptr;
  };
  if (!context_.pending.empty() || queue_.size() > 0 || std::ranges::any_of(driven_, to_watch))
    dependencies().channel.wake();
}

bool Engine::run(const Call& call) {
  return run_directly(call, [](const Call& same) {
    return TensorMemory{.input = same.inputs.front().data, .output = same.outputs.front().data};
  });
}

bool Engine::run(Operation& operation) {
  return run_directly(operation, [](const Operation& same) { return same.memory.tensors.front(); });
}

// Null unless the locked schedule waits for exactly this, and nothing else is to be done before.
DirectCall* Engine::direct_for(auto& asked) {
  if (ended_ || schedule_.has_posted() || !queue_.empty() || dependencies().timeline.active()) return nullptr;
  return schedule_.direct_for(asked);
}

bool Engine::run_directly(auto& asked, const auto& memory_of) {
  if (!driver_.try_lock()) return false;
  const MutexLock driver(driver_, std::adopt_lock);
  DirectCall* const direct = direct_for(asked);
  if (direct == nullptr) return false;
  const DefaultFloatingPoint floating_point;
  bool performed = false;
  std::exception_ptr failure;
  context_.driving_thread = DrivingThread::caller;
  drive([&]() REQUIRES(driver_) {
    dependencies().abort.check();
    performed = schedule_.perform_directly(*direct, memory_of(asked), failure);
  });
  context_.driving_thread = DrivingThread::engine;
  if (!context_.pending.empty()) dependencies().channel.wake();  // its stage may be the next one
  if (failure) std::rethrow_exception(failure);
  return performed;
}

bool Engine::post(Operation& operation) {
  // A mutex must not be tried by the thread that holds it.
  const bool in_callback = driving_thread_.load(std::memory_order_relaxed) == std::this_thread::get_id();
  if (in_callback || !driver_.try_lock()) return false;
  const MutexLock driver(driver_, std::adopt_lock);
  DirectCall* const direct = direct_for(operation);
  if (direct == nullptr) return false;
  const DefaultFloatingPoint floating_point;
  bool posted = false;
  drive([&]() REQUIRES(driver_) {
    dependencies().abort.check();
    posted = schedule_.post(*direct, operation);
  });
  return posted;
}

// A caller that drives cannot leave the collective before the others have come, or have declined after kLateTimeout:
// one that is to return earlier does not drive. Another thread that drives may have checked before post(): the engine
// thread is woken to complete it then.
void Engine::wait_posted(Operation& operation, Duration timeout) {
  if (timeout < ScheduleRunner::kLateTimeout) return hand_to_engine(operation);
  if (!driver_.try_lock()) return dependencies().channel.wake();
  const MutexLock driver(driver_, std::adopt_lock);
  const DefaultFloatingPoint floating_point;
  context_.driving_thread = DrivingThread::caller;
  drive([&]() REQUIRES(driver_) {
    dependencies().abort.check();
    schedule_.wait_posted();
  });
  context_.driving_thread = DrivingThread::engine;
  if (!context_.pending.empty()) dependencies().channel.wake();
}

void Engine::hand_to_engine(Operation& operation) {
  operation.set_caller_completes(false);
  dependencies().channel.wake();
}

// One iteration of the loop. Returns nothing if it made progress, else what to wait for.
std::optional<Engine::Pause> Engine::run_iteration() {
  dependencies().abort.check();
  schedule_.wait_posted();
  const Deadline next_watch = context_.executor->watch(Clock::now());
  const bool was_awaited = schedule_.awaited();  // before the queue is checked
  // Messages first: the channel remembers this check, so that a later submission ends the pause.
  bool progressed = negotiated_.apply_responses();
  if (ends()) return std::nullopt;
  progressed = take_operations() || progressed;
  progressed = schedule_.follow(awaited_) || progressed;
  negotiated_.record_recovery();
  if (progressed) {
    schedule_.made_progress();
    return std::nullopt;
  }
  const Deadline response_check = negotiated_.check_response_timeout();
  if (ends()) return std::nullopt;
  const Deadline deadline = std::min(
      {context_.negotiator.next_deadline(), response_check, schedule_.check_blocked_callers(was_awaited), next_watch});
  if (!may_pause()) return std::nullopt;
  return Pause{.doorbell_seen = dependencies().channel.doorbell_seen(),
               .deadline = deadline,
               .eager = !schedule_.active() && !context_.pending.empty()};
}

// Ends the run once there is a reason for it.
bool Engine::ends() {
  if (const auto& reason = negotiated_.end_reason()) end(*reason);
  return ended_;
}

// While a stage of the schedule waits for operations, the pause ends once all of them are queued, not with each of
// them. There is a deadline then, as something is pending. Submitters read wake_at_ after queueing: either they see the
// value set here, or this thread sees their operations.
bool Engine::may_pause() {
  const std::size_t wanted = schedule_.active() && !context_.pending.empty() ? schedule_.missing() : 1;
  wake_at_.store(wanted, std::memory_order_seq_cst);
  return queue_.size() < wanted;
}

bool Engine::take_operations() {
  queue_.take(taken_);
  const bool leave_now = leaving_.load(std::memory_order_acquire) && !context_.leaves;
  if (leave_now) dependencies().abort.check();  // a rank that has failed before it leaves must be reported as failed
  if (taken_.empty() && !leave_now) return false;
  dispatched_.clear();
  for (EngineReference& operation : taken_) dispatched_.push_back(&context_.insert(std::move(operation)));
  leave_now ? negotiated_.leave(dispatched_) : negotiated_.dispatch(dispatched_);
  return true;
}

void Engine::end(const Status& reason) {
  ended_ = true;
  {
    const MutexLock lock(reason_mutex_);
    reason_ = reason;
  }
  PendingOperations& pending = context_.pending;
  if (dependencies().on_end) dependencies().on_end(reason);
  // That other ranks leave does not matter to a rank that has nothing pending.
  if (reason.code() != StatusCode::shut_down || !pending.empty() || !queue_.empty()) {
    record_end(dependencies(), reason, leaving_.load(std::memory_order_acquire));
  }
  // Threads that wait for a device are notified before it is stopped: what it has written by then is void.
  if (dependencies().abort.raised()) context_.executor->give_up(reason);
  schedule_.give_up_posted();
  // From now on submit() is refused, and finds the reason.
  for (EngineReference& operation : queue_.close()) pending.insert(std::move(operation));
  for (const EngineReference& operation : pending.remove_all()) {
    if (operation->end(reason)) operation->completion.wake();
  }
}

Status Engine::reason() const {
  const MutexLock lock(reason_mutex_);
  return reason_;
}

}  // namespace hvd
