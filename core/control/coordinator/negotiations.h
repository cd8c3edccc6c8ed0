// Counts which ranks have asked for which name, and compares their requests.
//
// Pure; owned by the Coordinator, which answers what this table says is ready or has failed. It assigns the cache slots
// of the names, and reports to the stall inspector what waits for ranks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/config.h"
#include "core/control/coordinator/coordinator_cache.h"
#include "core/control/coordinator/pending_failures.h"
#include "core/control/coordinator/stall_inspector.h"
#include "core/control/protocol/agreement.h"
#include "core/control/protocol/rank_message.h"
#include "core/control/protocol/request_check.h"
#include "core/control/schedule/schedule_learner.h"
#include "core/operation/operation_spec.h"

namespace hvd {

// Throws Internal: these ranks break the protocol.
[[noreturn]] void report_violation(const RankSet& ranks, const std::string& what, const DescribeRank& describe_rank);

// The state of one name, while it has an open negotiation, pending failures or a cache slot.
struct Negotiation {
  const std::string* name = nullptr;
  std::uint32_t slot = kNoSlot;
  PendingFailures failed;  // earlier negotiations

  // The negotiation in progress.
  bool open = false;
  bool ready = false;  // nothing is missing
  TimePoint since{};
  std::uint64_t order = 0;    // of opening, among all negotiations
  int first = 0;              // the rank whose request the others are compared with
  std::uint64_t applied = 0;  // the most messages that a rank had applied when it asked
  RankSet asked;
  // Requests so far: hits on `cached`, or full requests collected in `draft`.
  AgreementPtr cached;
  std::optional<Agreement> draft;

  const Agreement& agreement() const { return cached ? *cached : *draft; }
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
  Negotiation& of(const std::string& name);
  // The state of the name whose response is the slot's current content, which is not empty.
  Negotiation& in_slot(std::uint32_t slot) { return *by_slot_[slot]; }
  const CoordinatorCache& cache() const { return cache_; }

  // Ranks ask for the current content of the name's cache slot. Requires that this has no pending failures, and no
  // negotiation in progress that is about something else.
  Outcome add_hit(Negotiation& negotiation, const RankMessage& message, const AgreementPtr& meant, TimePoint now);
  // These ranks ask for the name by a whole request.
  Outcome add_request(Negotiation& negotiation, const RankMessage& message, const SharedRequest& request,
                      TimePoint now);
  // Whether nothing is missing any more, or what is missing will never come.
  Outcome settle(Negotiation& negotiation) const;

  // Converts hits to whole requests, for a negotiation that differs from the last one.
  void collect_requests(Negotiation& negotiation) const;
  // The cache slot for the name's response, and what the slot held; kNoSlot if there is none to be had.
  std::uint32_t slot_for(Negotiation& negotiation);
  // Moves the requests of the negotiation into its slot, as the content from message `number` on.
  void store(Negotiation& negotiation, std::uint64_t number, std::uint64_t applied_by_all);

  // Ends the negotiation; the state of a name that is not needed any more is erased.
  void close(Negotiation& negotiation);
  // The same, with an error that ranks which have not asked still owe a submission for.
  void fail(Negotiation& negotiation, const Status& status);
  // Erases the state of a name that nobody needs.
  void forget_if_idle(Negotiation& negotiation);
  // Drops what failed before the join that these ranks have come to; they will not ask for it.
  void forgive(const RankSet& ranks, std::uint64_t order);
  // A number higher than any before, by which failures and negotiations are ordered.
  std::uint64_t next_order() { return ++order_; }
  std::uint64_t order() const { return order_; }

  std::size_t open_count() const { return open_count_; }
  // Oldest first, so that decisions for many at once have a defined order.
  std::vector<Negotiation*> open();
  // Whether the learner's schedule can take over from the negotiations in progress.
  bool agree_with(const ScheduleLearner& learner) const;

 private:
  void open(Negotiation& negotiation, int first, TimePoint now);
  void mark_asked(Negotiation& negotiation, const RankSet& ranks, std::uint64_t applied) const;
  std::string find_fault_in(const Negotiation& negotiation, const RankSet& ranks, const SharedRequest& request) const;
  void limit_failures(const Negotiation& newest);

  const RankSet all_;
  const JoinScope join_scope_;
  const Joins& joins_;
  StallInspector& stalls_;
  const DescribeRank describe_rank_;
  NameMap<Negotiation> names_;
  std::vector<Negotiation*> by_slot_;  // the name whose response each slot holds now
  CoordinatorCache cache_;
  std::uint64_t order_ = 0;
  std::size_t open_count_ = 0;
  // Names with pending failures, each with the order of its last one; oldest first. Some may have been claimed since.
  std::deque<std::pair<std::string, std::uint64_t>> indebted_;
};

}  // namespace hvd
