// What ranks tell the coordinator. Plain values; wire.h turns them into bytes.
//
// Ranks that say the same can say it as one: a node of the control tree passes on what its whole subtree has said
// (request_aggregator.h).
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "core/negotiation/rank_set.h"
#include "core/submission/request.h"

namespace hvd {

// What may differ between the requests of ranks that agree: see request.h.
struct RankPart {
  std::vector<std::int64_t> first_dimensions;  // by tensor
  std::vector<std::int64_t> splits;

  bool operator==(const RankPart&) const = default;
};

// One request of several ranks.
struct SharedRequest {
  SharedRequest(Request one) : request(std::move(one)) {}  // NOLINT(google-explicit-constructor): of one rank

  Request request;              // as one of the ranks wrote it, with the sizes of the lowest
  std::vector<RankPart> parts;  // by rank, ascending; may be left out where nothing differs, and for a single rank

  bool operator==(const SharedRequest&) const = default;
};

// What some ranks say, all of them alike.
struct RankMessage {
  RankSet ranks{};
  // Number of CoordinatorMessages after which the hits mean what the cache held: for a single rank, those that it had
  // applied when it wrote this.
  std::uint64_t applied = 0;
  std::uint64_t latest = 0;               // none of the ranks had applied more when it asked
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
