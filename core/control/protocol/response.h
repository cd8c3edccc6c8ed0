// The messages of the coordinator to all ranks: which operations to perform, and which have failed. Plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/operation/operation_spec.h"
#include "core/tuning/knobs.h"

namespace hvd {

inline constexpr std::uint32_t kNoSlot = 0xffffffff;

// The operations of a step, by cache slot: groups of operations, which may be fused, in order.
using Schedule = std::vector<std::vector<std::uint32_t>>;

struct Response {
  enum class Kind : std::uint8_t {
    execute = 0,     // every rank of the set performs `spec` now
    error = 1,       // spec.name ends with `status` on the ranks in `ranks`
    all_joined = 2,  // every rank has joined; `last_joined` was the last
    shut_down = 3,   // rank `last_joined` leaves; everything pending ends with `status`
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
  // error: the global ranks whose submission of the name ends, ascending. A rank that is not listed either has none or
  // has already submitted the name again, which this error does not affect.
  std::vector<std::int32_t> ranks;
  std::int32_t last_joined = -1;
  Schedule schedule{};  // lock

  bool operator==(const Response&) const = default;
};

// From the coordinator to every rank. Responses are performed in this order.
struct CoordinatorMessage {
  // Either a whole response or a cache slot, whose response every rank has.
  struct Entry {
    std::uint32_t cached_slot = kNoSlot;
    std::optional<Response> response;
    bool operator==(const Entry&) const = default;
  };
  std::uint64_t number = 0;  // 1, 2, 3, ... : see RankMessage::applied
  std::vector<Entry> entries;
  std::optional<Knobs> knobs{};      // from this message on
  std::vector<std::string> notices;  // warnings for every rank's log, for instance of a stall

  bool operator==(const CoordinatorMessage&) const = default;
};

}  // namespace hvd
