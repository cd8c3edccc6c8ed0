// A locked schedule as this rank performs it: its stages, with this rank's operations once they are submitted, and what
// can be performed directly. Made when the schedule is locked; used by the thread that drives the engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/control/schedule/schedule_lock.h"
#include "core/engine/engine_context.h"

namespace hvd {

class StagedSchedule {
 public:
  StagedSchedule() = default;
  StagedSchedule(const Schedule& schedule, EngineContext& context);

  // The slots of the response cache in each stage.
  std::vector<std::vector<std::uint32_t>> slots() const;

  // Enters the operation of a slot into its stage.
  void enter(std::uint32_t slot, Operation& operation) {
    for (Bucket::Item* item : items_[slot]) item->own = &operation;
  }

  Stage& stage(std::size_t index) { return stages_[index]; }

  // The direct call of a stage if it waits for exactly `asked`; else null. An operation is one that is prepared, and in
  // a slot of the schedule: of that the number is compared.
  DirectCall* direct_for(const Call& asked, std::size_t stage, const OperationTable& names) {
    return means(asked, direct_[stage], names) ? &direct_[stage] : nullptr;
  }
  DirectCall* direct_for(const Operation& asked, std::size_t stage) {
    DirectCall& direct = direct_[stage];
    return direct.spec != nullptr && direct.slot == asked.scheduled.slot ? &direct : nullptr;
  }

 private:
  bool means(const Call& asked, const DirectCall& direct, const OperationTable& names) const {
    if (!direct.fits(asked)) return false;
    if (!asked.name.empty()) return direct.spec->name == asked.name;
    return direct.spec->name == unnamed_ && names.changes_of_numbers() == unnamed_since_;
  }

  std::vector<std::shared_ptr<const Response>> responses_;  // that stages_ refers to
  std::vector<Stage> stages_;
  std::vector<std::vector<Bucket::Item*>> items_;  // of stages_, by slot
  std::vector<DirectCall> direct_;                 // for each stage
  std::uint64_t unnamed_since_ = 0;                // OperationTable::changes_of_numbers() at the lock
  std::string unnamed_;                            // next_synchronous_name() then
};

}  // namespace hvd
