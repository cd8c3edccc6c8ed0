#include "core/engine/staged_schedule.h"

namespace hvd {

StagedSchedule::StagedSchedule(const Schedule& schedule, EngineContext& context)
    : unnamed_since_(context.dependencies.names.changes_of_numbers()),
      unnamed_(context.dependencies.names.next_synchronous_name()) {
  std::vector<std::vector<const Response*>> groups;
  for (const auto& slots : schedule) {
    groups.emplace_back();
    for (const std::uint32_t slot : slots) {
      groups.back().push_back(responses_.emplace_back(context.negotiator.cache().at(slot)).get());
    }
  }
  stages_ = plan_stages(groups, context.knobs.fusion_threshold_bytes);
  for (Stage& stage : stages_) {
    for (Bucket& bucket : stage) {
      for (Bucket::Item& item : bucket.items) {
        if (item.response->slot >= items_.size()) items_.resize(item.response->slot + std::size_t{1});
        items_[item.response->slot].push_back(&item);
      }
    }
    direct_.push_back(stage.size() == 1 ? context.executor->make_direct(stage.front()) : DirectCall());
  }
}

std::vector<std::vector<std::uint32_t>> StagedSchedule::slots() const {
  std::vector<std::vector<std::uint32_t>> slots;
  for (const Stage& stage : stages_) {
    slots.emplace_back();
    for (const Response* response : responses_of(stage)) slots.back().push_back(response->slot);
  }
  return slots;
}

}  // namespace hvd
