// A rank's cache of responses by slot, so that a repeated operation costs one bit to request and one number to answer.
//
// Pure; owned by the Negotiator. The coordinator alone assigns slots: a rank stores what the
// messages say, in their order, so every rank holds the same response in the same slot. Only the rank's own request
// (first dimensions, splits) differs; it is kept here to recognise a repetition.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/control/protocol/messages.h"
#include "core/control/protocol/wire.h"
#include "core/operation/operation_spec.h"

namespace hvd {

class ResponseCache {
 public:
  // The slot whose operation this rank has requested with exactly this request, if any.
  std::optional<std::uint32_t> find(const OperationSpec& own) const {
    const auto found = by_name_.find(own.name);
    if (found == by_name_.end() || *slots_[found->second].own != own) return std::nullopt;
    return found->second;
  }

  // Stores an execute response in the slot that it names, if any; replaces the slot's content. `own` is this rank's
  // submission of that name, null if it had none: find() then does not return the slot, at() does. Throws Internal for
  // a slot beyond kMaxCacheSlots.
  void store(std::shared_ptr<const Response> response, const OperationSpec* own) {
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

  // Throws Internal if the slot is empty. Shared, since a later entry of the same message may replace the slot's
  // content while the response is still being performed.
  std::shared_ptr<const Response> at(std::uint32_t slot) const {
    if (slot >= slots_.size() || !slots_[slot].response) {
      throw Internal("the coordinator named cache slot " + std::to_string(slot) + ", which is empty");
    }
    return slots_[slot].response;
  }
  // The response of an entry: contained in it, or in its slot.
  std::shared_ptr<const Response> resolve(ResponseList::Entry entry) const {
    return entry.response ? std::make_shared<const Response>(std::move(*entry.response)) : at(entry.cached_slot);
  }

 private:
  struct Slot {
    std::shared_ptr<const Response> response;
    std::optional<OperationSpec> own;
  };
  std::vector<Slot> slots_;
  NameMap<std::uint32_t> by_name_;  // slots with a request of this rank
};

}  // namespace hvd
