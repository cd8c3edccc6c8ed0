// Performs what the ranks agree on by negotiation: announces this rank's operations to the coordinator, applies its
// responses in order, and hands over to the ScheduleRunner while a schedule is locked. Called by the thread that drives
// the engine.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/engine/engine_context.h"
#include "core/engine/schedule_runner.h"
#include "core/tuning/autotuner.h"

namespace hvd {

// Whether this rank chooses the knobs of all ranks: only rank 0 tunes, in the set of all ranks.
bool tunes(const EngineDependencies& dependencies);

// Whether schedules can be locked at all.
bool can_lock(const EngineDependencies& dependencies, const Executor& executor);

class NegotiatedRunner {
 public:
  // Both outlive this object.
  NegotiatedRunner(EngineContext& context, ScheduleRunner& schedule);

  // Applies the coordinator's messages that have arrived. True if there were any.
  bool apply_responses();

  // Announces pending operations, or enters them into the locked schedule.
  void dispatch(const std::vector<Operation*>& operations);

  // Announces that this rank leaves, with these operations.
  void leave(const std::vector<Operation*>& operations);

  // Once the run has ended by the coordinator's word, or because it has not acknowledged that this rank leaves: why.
  const std::optional<Status>& end_reason() const;
  // Whether all ranks have agreed to that end.
  bool agreed_to_end() const;

  // Withdraws the warning of a stall if nothing that it was about is pending any more, and something has been performed
  // since.
  void record_recovery();

  // Throws Timeout if the parent in the control tree has been silent for too long; ends the run if this rank has waited
  // for the acknowledgement of its leave for too long. Returns when to check again.
  Deadline check_response_timeout();

 private:
  bool waits_for_responses() const;
  void apply(ResponseList message);
  void record_stall(const std::string& warning);
  void perform(std::vector<std::shared_ptr<const Response>>& executes);
  void tune(const std::vector<std::shared_ptr<const Response>>& executed);
  void apply_response(const Response& response);

  EngineContext& context_;
  ScheduleRunner& schedule_;
  std::unique_ptr<Tuner> tuner_;  // until it has finished
  bool stalled_ = false;          // the state in the flight recorder
  std::uint64_t operations_at_stall_ = 0;
  Deadline leave_deadline_ = Deadline::max();  // for the acknowledgement
  std::optional<Status> end_reason_;
  bool agreed_to_end_ = false;
};

}  // namespace hvd
