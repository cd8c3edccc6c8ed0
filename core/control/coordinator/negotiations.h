// Counts which ranks have asked for which name, and compares their requests.
//
// Pure; owned by the Coordinator, which answers what this table says is ready or has failed. It assigns the cache slots
// of the names, and reports to the stall inspector what waits for ranks.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <iterator>
#include <list>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/base/status.h"
#include "core/config.h"
#include "core/control/coordinator/stall_inspector.h"
#include "core/control/protocol/agreement.h"
#include "core/control/protocol/messages.h"
#include "core/control/protocol/wire.h"
#include "core/control/schedule/schedule_learner.h"
#include "core/operation/operation_spec.h"

namespace hvd {

// The negotiations of a name that failed before every rank had asked, and the ranks that have not asked yet: the next
// submission of each of these late ranks gets the same error. So a rank's n-th submission belongs to the name's n-th
// negotiation. Once there are many, those with the same late ranks are counted in one entry, so that a rank that never
// comes back costs no memory.
class PendingFailures {
 public:
  struct Delivery {
    Status status;
    RankSet ranks;
    std::uint64_t order = 0;
  };

  // `order`: higher than that of any earlier failure, of any name.
  void add(const Status& status, const RankSet& late, std::uint64_t order) {
    if (late.empty()) return;
    if (failures_.size() >= kApart && failures_.back().late == late) {
      ++failures_.back().times;
      failures_.back().order = order;
    } else {
      failures_.push_back({.status = status, .late = late, .order = order});
    }
  }

  bool empty() const { return failures_.empty(); }
  // The order of the last failure added; requires !empty().
  std::uint64_t newest() const { return failures_.back().order; }
  std::size_t size() const { return failures_.size(); }

  // Removes the oldest failure of each of the ranks. Ranks that are late for nothing are in no delivery.
  std::vector<Delivery> take_oldest(const RankSet& ranks) {
    RankSet free = ranks;
    std::vector<Delivery> taken;
    std::deque<Failure> left;
    for (Failure& failure : failures_) {
      const RankSet receiving = intersection(free, failure.late);
      if (!receiving.empty()) {
        free.remove(receiving);
        failure.late.remove(receiving);
        taken.push_back({failure.status, receiving, failure.order});
        if (failure.times > 1) left.push_back({failure.status, receiving, failure.order, failure.times - 1});
      }
      if (!failure.late.empty()) left.push_back(std::move(failure));
    }
    failures_ = std::move(left);
    return taken;
  }
  // What take_oldest() would return, without removing it.
  std::vector<Delivery> oldest(const RankSet& ranks) const { return PendingFailures(*this).take_oldest(ranks); }

  // These ranks are no longer late for what failed before `order`.
  void drop_before(const RankSet& ranks, std::uint64_t order) {
    for (Failure& failure : failures_) {
      if (failure.order < order) failure.late.remove(ranks);
    }
    std::erase_if(failures_, [](const Failure& failure) { return failure.late.empty(); });
  }
  void clear() { failures_.clear(); }

 private:
  static constexpr std::size_t kApart = 64;

  struct Failure {
    Status status;
    RankSet late;
    std::uint64_t order = 0;  // of the last
    std::uint64_t times = 1;
  };

  std::deque<Failure> failures_;  // oldest first
};

// The coordinator's side of the response cache: the current and the earlier contents of each slot. It allocates slots
// (a fresh one, else the least recently used) and keeps replaced contents for as long as a hit on them may be in
// flight: a hit carries the number of messages that its rank had applied, and each content has the numbers of the
// messages that filled and replaced it.
class CoordinatorCache {
 public:
  explicit CoordinatorCache(std::size_t capacity) : capacity_(std::min<std::size_t>(capacity, kMaxCacheSlots)) {}

  // The content of the slot for a rank that has applied `applied` messages; null if the slot was empty then. Constant
  // time if that is the current content.
  const AgreementPtr& find(std::uint32_t slot, std::uint64_t applied) const {
    if (slot >= slots_.size()) return nothing_;
    const Slot& kept = slots_[slot];
    if (kept.filled_by <= applied) return kept.content;
    for (const Past& past : kept.past) {
      if (past.filled_by <= applied && applied < past.replaced_by) return past.content;
    }
    return nothing_;
  }

  const AgreementPtr& current(std::uint32_t slot) const { return slots_[slot].content; }

  // Allocates a slot, held from now on; kNoSlot if all are held. If current(slot) is not null, it is evicted.
  std::uint32_t take() {
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

  // Fills the slot through message `number`. Every rank that may still send a hit on the old content has applied
  // `applied_by_all` messages; older contents are discarded.
  void store(std::uint32_t slot, AgreementPtr content, std::uint64_t number, std::uint64_t applied_by_all) {
    Slot& kept = slots_[slot];
    std::erase_if(kept.past, [&](const Past& past) { return past.replaced_by <= applied_by_all; });
    if (kept.content) kept.past.push_back({std::move(kept.content), kept.filled_by, number});
    kept.content = std::move(content);
    kept.filled_by = number;
  }

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

struct NegotiatedName;

// A negotiation in progress.
struct Negotiation {
  NegotiatedName& of;
  TimePoint since;
  std::uint64_t order;        // of opening, among all negotiations
  int first;                  // the rank whose request the others are compared with
  bool ready = false;         // nothing is missing
  std::uint64_t applied = 0;  // the most messages that a rank had applied when it asked
  RankSet asked{};
  // Requests so far: hits on `cached`, or full requests collected in `draft`.
  AgreementPtr cached{};
  std::optional<Agreement> draft{};

  const Agreement& agreement() const { return cached ? *cached : *draft; }
};

// The state of one name, while it has a negotiation in progress, pending failures or a cache slot.
struct NegotiatedName {
  const std::string* name = nullptr;
  std::uint32_t slot = kNoSlot;
  PendingFailures failed;  // earlier negotiations
  std::optional<Negotiation> open;
};

// The join in progress, and those that were given up.
struct Joins {
  RankSet ranks;     // that have joined
  std::string name;  // that they have sent
  PendingFailures failed;
};

class Negotiations {
 public:
  struct Options {
    int size = 1;  // ranks from 0
    std::size_t cache_capacity = 0;
    JoinScope join_scope = JoinScope::all;
  };
  // References outlive this object.
  Negotiations(const Options& options, const Joins& joins, StallInspector& stalls, DescribeRank describe_rank);

  // What a request has led to. Neither: the negotiation waits for other ranks.
  struct Outcome {
    bool ready = false;
    std::string fault{};  // not empty: why the negotiation fails
  };

  // The name's state, which is made if there is none.
  NegotiatedName& of(const std::string& name);
  // The state of the name whose response is the slot's current content, which is not empty.
  NegotiatedName& in_slot(std::uint32_t slot) { return *by_slot_[slot]; }
  const CoordinatorCache& cache() const { return cache_; }

  // Ranks ask for the current content of the name's cache slot. Requires that this has no pending failures, and no
  // negotiation in progress that is about something else.
  Outcome add_hit(NegotiatedName& name, const RankMessage& message, const AgreementPtr& meant, TimePoint now);
  // These ranks ask for the name by a whole request. Afterwards it has a negotiation in progress, as after add_hit().
  Outcome add_request(NegotiatedName& name, const RankMessage& message, const SharedRequest& request, TimePoint now);
  // Whether nothing is missing any more, or what is missing will never come.
  Outcome update_readiness(Negotiation& negotiation) const;

  // Converts hits to whole requests, for a negotiation that differs from the last one.
  void collect_requests(Negotiation& negotiation) const;
  // The cache slot for the name's response, and what the slot held; kNoSlot if there is none to be had.
  std::uint32_t slot_for(NegotiatedName& name);
  // Moves the requests of the negotiation into its slot, as the content from message `number` on.
  void store(Negotiation& negotiation, std::uint64_t number, std::uint64_t applied_by_all);

  // Ends the negotiation; the state of a name that is not needed any more is erased.
  void close(Negotiation& negotiation);
  // The same, with an error that the next submission of each rank that has not asked gets, too.
  void fail(Negotiation& negotiation, const Status& status);
  // Erases the state of a name that nobody needs.
  void forget_if_idle(NegotiatedName& name);
  // Drops what failed before the join that these ranks have come to; they will not ask for it.
  void drop_before(const RankSet& ranks, std::uint64_t order);
  // A number higher than any before, by which failures and negotiations are ordered.
  std::uint64_t next_order() { return ++order_; }
  std::uint64_t order() const { return order_; }

  std::size_t open_count() const { return open_count_; }
  // Oldest first, so that decisions for many at once have a defined order.
  std::vector<Negotiation*> open();
  // Whether the learner's schedule can take over from the negotiations in progress.
  bool agree_with(const ScheduleLearner& learner) const;

 private:
  // The negotiation of the name that is in progress, or begins now with these ranks.
  Negotiation& open(NegotiatedName& name, const RankSet& ranks, TimePoint now);
  void mark_asked(Negotiation& negotiation, const RankSet& ranks, std::uint64_t applied) const;
  std::string find_fault_in(const Negotiation& negotiation, const RankSet& ranks, const SharedRequest& request) const;
  void limit_failures(const NegotiatedName& newest);

  const RankSet all_;
  const JoinScope join_scope_;
  const Joins& joins_;
  StallInspector& stalls_;
  const DescribeRank describe_rank_;
  NameMap<NegotiatedName> names_;
  std::vector<NegotiatedName*> by_slot_;  // the name whose response each slot holds now
  CoordinatorCache cache_;
  std::uint64_t order_ = 0;
  std::size_t open_count_ = 0;
  // Names with pending failures, each with the order of its last one; oldest first. Some may have been delivered since.
  std::deque<std::pair<std::string, std::uint64_t>> names_by_failure_;
};

}  // namespace hvd
