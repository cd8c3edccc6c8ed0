#include "core/control/protocol/response_cache.h"

#include "core/base/error.h"
#include "core/control/protocol/wire.h"

namespace hvd {

std::optional<std::uint32_t> ResponseCache::find(const OperationSpec& own) const {
  const auto found = by_name_.find(own.name);
  if (found == by_name_.end() || *slots_[found->second].own != own) return std::nullopt;
  return found->second;
}

void ResponseCache::store(std::shared_ptr<const Response> response, const OperationSpec* own) {
  const std::uint32_t slot = response->slot;
  if (slot == kNoSlot) return;
  if (slot >= kMaxCacheSlots) throw Internal("the coordinator named cache slot " + std::to_string(slot));
  if (slot >= slots_.size()) slots_.resize(slot + std::size_t{1});
  Slot& kept = slots_[slot];
  if (kept.own) {
    const auto old = by_name_.find(kept.own->name);
    if (old != by_name_.end() && old->second == slot) by_name_.erase(old);
  }
  kept.response = std::move(response);
  kept.own.reset();
  if (!own) return;
  kept.own = *own;
  by_name_.insert_or_assign(own->name, slot);
}

std::shared_ptr<const Response> ResponseCache::at(std::uint32_t slot) const {
  if (slot >= slots_.size() || !slots_[slot].response) {
    throw Internal("the coordinator named cache slot " + std::to_string(slot) + ", which is empty");
  }
  return slots_[slot].response;
}

std::shared_ptr<const Response> ResponseCache::resolve(CoordinatorMessage::Entry entry) const {
  return entry.response ? std::make_shared<const Response>(std::move(*entry.response)) : at(entry.cached_slot);
}

}  // namespace hvd
