#include "core/control/protocol/response_cache.h"

#include "core/base/error.h"
#include "core/control/protocol/wire.h"

namespace hvd {

std::optional<std::uint32_t> ResponseCache::find(const OperationSpec& own) const {
  const auto found = by_key_.find(key_of(own));
  if (found == by_key_.end() || *slots_[found->second].own != own) return std::nullopt;
  return found->second;
}

void ResponseCache::store(std::uint32_t slot, std::shared_ptr<const Response> response, const OperationSpec* own) {
  if (slot >= kMaxCacheSlots) throw Internal("the coordinator named cache slot " + std::to_string(slot));
  if (slot >= slots_.size()) slots_.resize(slot + std::size_t{1});
  Slot& kept = slots_[slot];
  if (kept.own) {
    const auto old = by_key_.find(key_of(*kept.own));
    if (old != by_key_.end() && old->second == slot) by_key_.erase(old);
  }
  kept.response = std::move(response);
  kept.own.reset();
  if (!own) return;
  kept.own = *own;
  by_key_.insert_or_assign(OperationKey(*own), slot);
}

std::shared_ptr<const Response> ResponseCache::at(std::uint32_t slot) const {
  if (slot >= slots_.size() || !slots_[slot].response) {
    throw Internal("the coordinator named cache slot " + std::to_string(slot) + ", which is empty");
  }
  return slots_[slot].response;
}

}  // namespace hvd
