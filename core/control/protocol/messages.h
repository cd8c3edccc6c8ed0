// The messages of the control plane: of ranks to the coordinator, and of the coordinator to all ranks. Plain values;
// wire.h encodes them.
//
// Ranks that send the same can share a message: a node of the control tree combines the messages of its subtree
// (request_aggregator.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/config.h"
#include "core/control/protocol/rank_set.h"
#include "core/operation/operation_spec.h"

namespace hvd {

// ---- Of ranks

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
  // The number of ResponseLists after which the hits refer to the cache's content: for a single rank, those that
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

// ---- Of the coordinator

inline constexpr std::uint32_t kNoSlot = 0xffffffff;

// The operations of a step, by cache slot: groups of operations, which may be fused, in order.
using Schedule = std::vector<std::vector<std::uint32_t>>;

struct Response {
  enum class Kind : std::uint8_t {
    execute = 0,     // every rank of the set performs `spec` now
    error = 1,       // spec.name ends with `status` on the ranks in `ranks`
    all_joined = 2,  // every rank has joined; `rank` was the last
    shut_down = 3,   // `rank` leaves; everything pending ends with `status`
    lock = 4,        // from now on every rank follows `schedule`: schedule_lock.h. The last of its message
  };
  Kind kind = Kind::execute;
  OperationSpec spec;  // from one of the ranks, with the sizes of the lowest; error: process_set and name only
  std::uint32_t slot = kNoSlot;  // cache slot in which every rank must store this (execute only)
  // execute: how many ranks of the set have asked; the others have joined. With a slot: all.
  std::int32_t contributing = 0;

  // allgather: rows[tensor][rank of set]; alltoall: rows[source][destination]; else empty. A joined rank has 0 rows.
  std::vector<std::vector<std::int64_t>> rows;

  Status status;
  // error: the ranks of the set whose submission of the name ends, ascending. A rank that is not listed either has none
  // or has already submitted the name again, which this error does not affect.
  std::vector<std::int32_t> ranks;
  std::int32_t rank = -1;  // all_joined, shut_down
  Schedule schedule{};     // lock

  bool operator==(const Response&) const = default;
};

// From the coordinator to every rank. Responses are performed in this order.
struct ResponseList {
  // Either a whole response or a cache slot, whose response every rank has.
  struct Entry {
    std::uint32_t cached_slot = kNoSlot;
    std::optional<Response> response;
    bool operator==(const Entry&) const = default;
  };
  std::uint64_t number = 0;  // 1, 2, 3, ... : see RankMessage::applied
  std::vector<Entry> entries;
  std::optional<Knobs> knobs{};       // from this message on
  std::vector<std::string> warnings;  // for every rank's log, for instance of a stall

  bool operator==(const ResponseList&) const = default;
};

}  // namespace hvd
