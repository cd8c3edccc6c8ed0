// The coordinator's side of the response cache: the current and the earlier contents of each slot.
//
// Pure; owned by the Coordinator. It allocates slots (a fresh one, else the least recently used) and keeps replaced
// contents for as long as a hit on them may be in flight: a hit carries the number of messages that its rank had
// applied, and each content has the numbers of the messages that filled and replaced it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <vector>

#include "core/control/protocol/agreement.h"

namespace hvd {

class CoordinatorCache {
 public:
  explicit CoordinatorCache(std::size_t capacity);

  // The content of the slot for a rank that has applied `applied` messages; null if the slot was empty then. Constant
  // time if that is the current content.
  const AgreementPtr& find(std::uint32_t slot, std::uint64_t applied) const;

  const AgreementPtr& current(std::uint32_t slot) const { return slots_[slot].content; }

  // Allocates a slot, held from now on; kNoSlot if all are held. If current(slot) is not null, it is evicted.
  std::uint32_t take();

  // Fills the slot through message `number`. Every rank that may still send a hit on the old content has applied
  // `applied_by_all` messages; older contents are discarded.
  void store(std::uint32_t slot, AgreementPtr content, std::uint64_t number, std::uint64_t applied_by_all);

  // A held slot is not evicted; releasing it makes it the most recently used.
  void hold(std::uint32_t slot) { held_.splice(held_.end(), idle_, slots_[slot].place); }
  void release(std::uint32_t slot) { idle_.splice(idle_.end(), held_, slots_[slot].place); }

 private:
  struct Past {
    AgreementPtr content;
    std::uint64_t filled_by = 0;
    std::uint64_t replaced_by = 0;
  };
  struct Slot {
    AgreementPtr content;
    std::uint64_t filled_by = 0;
    std::vector<Past> past;  // oldest first
    std::list<std::uint32_t>::iterator place;
  };

  std::size_t capacity_;
  std::vector<Slot> slots_;
  std::list<std::uint32_t> idle_;  // least recently used first
  std::list<std::uint32_t> held_;
  const AgreementPtr nothing_;
};

}  // namespace hvd
