// The coordinator's side of the response cache: what each slot means, and what it meant before.
//
// Pure; owned by the Coordinator. It picks slots (a fresh one, else the least recently used) and keeps replaced
// contents for as long as a hit that means them may be in flight: a rank says how many messages it had applied when it
// sent the hit, and a content is known with the numbers of the messages that filled and replaced it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <list>
#include <vector>

#include "core/negotiation/agreement.h"

namespace hvd {

class CoordinatorCache {
 public:
  explicit CoordinatorCache(std::size_t capacity);

  // What a rank means by the slot that has applied `applied` messages; null if the slot was empty for it.
  // Constant time where that is what the slot still holds.
  const AgreementPtr& find(std::uint32_t slot, std::uint64_t applied) const;

  const AgreementPtr& current(std::uint32_t slot) const { return slots_[slot].content; }

  // A slot for something new, held from now on; kNoSlot if all are held. If current(slot) is not null, it is evicted.
  std::uint32_t take();

  // Fills the slot through message `number`. Every rank that may still send a hit on the old content has applied
  // `applied_by_all`; what is older than that is forgotten.
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
