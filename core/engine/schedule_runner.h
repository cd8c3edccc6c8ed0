// Performs the locked schedule (core/control/schedule/schedule_lock.h) while steps repeat, and gives it up when this
// rank or another one cannot follow it. Called by the thread that drives the engine.
#pragma once

#include <cstdint>
#include <exception>
#include <optional>

#include "core/control/schedule/schedule_lock.h"
#include "core/engine/engine_context.h"
#include "core/engine/staged_schedule.h"

namespace hvd {

// The time of direct calls. One in so many is measured, and represents the others: reading the clock costs as much as
// the rest of the call.
class DirectCallTime {
 public:
  // Nothing if this call is not measured.
  std::optional<TimePoint> started() { return ++calls_ % kMeasured == 0 ? std::optional(Clock::now()) : std::nullopt; }
  static void ended(std::optional<TimePoint> started, Metrics& metrics);

 private:
  static constexpr unsigned kMeasured = 17;  // a prime: the length of repeating steps is seldom a multiple of it

  unsigned calls_ = 0;
};

class ScheduleRunner {
 public:
  // How long a caller that has begun a collective waits for the other ranks before it breaks the lock.
  static constexpr Duration kLateTimeout = std::chrono::milliseconds(100);

  // The context outlives this object.
  explicit ScheduleRunner(EngineContext& context);

  bool active() const;
  // The number of submitted operations that the next stage waits for. Requires active().
  std::size_t missing() const;

  // The coordinator's message of number `number` has locked this schedule.
  void lock(const Schedule& schedule, std::uint64_t number);

  // Enters a pending operation into the schedule, or breaks the lock.
  void add(Operation& operation);

  // Performs the stages whose operations are there, until `awaited`, if any, is done: a caller whose operation is done
  // leaves the rest to the engine thread. True if something has been performed or declined.
  bool follow(const Completion* awaited);

  // The direct call of the next stage if `asked` is exactly the operation that it waits for; else null. Costs a few
  // comparisons; nothing is allocated or looked up.
  DirectCall* direct_for(const Call& asked) {
    const auto stage = lock_.single(asked_to_break());
    return stage ? staged_.direct_for(asked, *stage, context_.dependencies.names) : nullptr;
  }
  DirectCall* direct_for(Operation& asked) {
    const auto stage = lock_.single(asked_to_break());
    return stage && find_slot(asked) ? staged_.direct_for(asked, *stage) : nullptr;
  }
  // Performs it on this memory. False if it was declined, and all ranks negotiate again. An Unsupported or a Mismatch
  // ends the operation only, and is stored in `failure`.
  bool perform_directly(DirectCall& direct, const TensorMemory& memory, std::exception_ptr& failure);

  // Posts it for this operation, so that no other rank waits for this one. False, without effect: not possible. Until
  // wait_posted() no other stage is performed.
  bool post(DirectCall& direct, Operation& operation);
  bool has_posted() const;
  // Completes what has been posted, if anything: then the operation is done or, if it was declined, pending.
  void wait_posted();
  // Instead of wait_posted(), when the engine ends.
  void give_up_posted();

  // This rank wants the lock to end.
  void request_end(ScheduleLock::Cause cause);
  // The run has ended by agreement: a leaving rank may have announced that before it knew of the schedule, and waits
  // now for all to decline.
  void end();

  // Breaks the lock if a thread waits for an operation while the schedule waits for an earlier one that this rank has
  // not submitted: then the program has changed its order, and would block forever. `awaited`: see awaited(). Returns
  // when to check again.
  Deadline check_blocked_callers(bool awaited);
  // Whether a thread waits for an operation while nothing can be performed. Called before the queue is checked.
  bool awaited() const;
  // Something was performed, or has arrived.
  void made_progress();

 private:
  // Whether the schedule has the operation; stores where, until the next lock.
  bool find_slot(Operation& operation) {
    if (operation.scheduled.lock_number == lock_.number()) return true;
    const auto slot = context_.negotiator.cache().find(operation.spec);
    if (slot) operation.scheduled = {.lock_number = lock_.number(), .slot = *slot};
    return slot.has_value();
  }
  bool asked_to_break() const { return context_.dependencies.channel.break_requested() >= lock_.number(); }
  void performed_directly(std::optional<TimePoint> started);
  bool perform(Stage& stage);
  bool on_late_ranks();
  void abandon_lock();
  void record_state();

  EngineContext& context_;
  ScheduleLock lock_;
  StagedSchedule staged_;
  EngineReference posted_;  // of the next stage, by direct_posted_
  DirectCall* direct_posted_ = nullptr;
  DirectCallTime time_;
  int late_calls_ = 0;                      // of the stage in progress
  const int most_late_calls_;               // for the engine thread
  std::optional<TimePoint> blocked_since_;  // while locked, with something pending and nothing to perform
};

}  // namespace hvd
