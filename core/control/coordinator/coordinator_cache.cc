#include "core/control/coordinator/coordinator_cache.h"

#include <algorithm>

#include "core/control/protocol/wire.h"

namespace hvd {

CoordinatorCache::CoordinatorCache(std::size_t capacity) : capacity_(std::min<std::size_t>(capacity, kMaxCacheSlots)) {}

const AgreementPtr& CoordinatorCache::find(std::uint32_t slot, std::uint64_t applied) const {
  if (slot >= slots_.size()) return nothing_;
  const Slot& kept = slots_[slot];
  if (kept.filled_by <= applied) return kept.content;
  for (const Past& past : kept.past) {
    if (past.filled_by <= applied && applied < past.replaced_by) return past.content;
  }
  return nothing_;
}

std::uint32_t CoordinatorCache::take() {
  if (slots_.size() < capacity_) {
    const auto slot = static_cast<std::uint32_t>(slots_.size());
    held_.push_back(slot);
    slots_.push_back({.content = {}, .past = {}, .place = std::prev(held_.end())});
    return slot;
  }
  if (idle_.empty()) return kNoSlot;
  const std::uint32_t slot = idle_.front();
  hold(slot);
  return slot;
}

void CoordinatorCache::store(std::uint32_t slot, AgreementPtr content, std::uint64_t number,
                             std::uint64_t applied_by_all) {
  Slot& kept = slots_[slot];
  std::erase_if(kept.past, [&](const Past& past) { return past.replaced_by <= applied_by_all; });
  if (kept.content) kept.past.push_back({std::move(kept.content), kept.filled_by, number});
  kept.content = std::move(content);
  kept.filled_by = number;
}

}  // namespace hvd
