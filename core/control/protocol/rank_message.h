// The messages of ranks to the coordinator. Plain values; wire.h encodes them.
//
// Ranks that send the same can share a message: a node of the control tree combines the messages of its subtree
// (request_aggregator.h).
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "core/control/protocol/rank_set.h"
#include "core/operation/operation_spec.h"

namespace hvd {

// What may differ between the requests of ranks that agree: see operation_spec.h.
struct RankPart {
  std::vector<std::int64_t> first_dimensions;  // by tensor
  std::vector<std::int64_t> splits;

  bool operator==(const RankPart&) const = default;
};

// One request of several ranks.
struct SharedRequest {
  SharedRequest(OperationSpec one) : spec(std::move(one)) {}  // NOLINT(google-explicit-constructor): of one rank

  OperationSpec spec;           // from one of the ranks, with the sizes of the lowest
  std::vector<RankPart> parts;  // by rank, ascending; may be omitted where nothing differs, and for a single rank

  bool operator==(const SharedRequest&) const = default;
};

// The common message of some ranks.
struct RankMessage {
  RankSet ranks{};
  // The number of CoordinatorMessages after which the hits refer to the cache's content: for a single rank, those that
  // it had applied when it wrote this.
  std::uint64_t applied = 0;
  std::uint64_t latest = 0;               // the most messages that one of the ranks had applied when it asked
  std::vector<std::uint32_t> hits{};      // cache slots these ranks are ready for, ascending; a bit vector on the wire
  std::vector<SharedRequest> requests{};  // what is not in the cache; a join is a request too
  bool shut_down = false;                 // these ranks are leaving

  bool operator==(const RankMessage&) const = default;
};

// From a node of the control tree to its parent.
struct SubtreeMessage {
  std::uint64_t applied_by_all = 0;  // messages that every rank of the subtree has applied, unless it has joined
  std::vector<RankMessage> messages{};

  bool operator==(const SubtreeMessage&) const = default;
};

}  // namespace hvd
