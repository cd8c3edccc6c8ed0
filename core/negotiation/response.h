// "All do X now", or "X failed": what the coordinator tells every rank. Plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/submission/request.h"
#include "core/tuning/knobs.h"

namespace hvd {

inline constexpr std::uint32_t kNoSlot = 0xffffffff;

// What is done in a step, by cache slots: groups of operations, which may be fused, in their order.
using Schedule = std::vector<std::vector<std::uint32_t>>;

struct Response {
  enum class Kind : std::uint8_t {
    execute = 0,     // every rank of the set performs `request` now
    error = 1,       // request.name ends with `status` on the ranks in `ranks`
    all_joined = 2,  // every rank has joined; `last_joined` was the last
    shut_down = 3,   // rank `last_joined` leaves; everything that is pending ends with `status`
    lock = 4,        // from here on every rank does as in `schedule`: schedule_lock.h. The last of its message
  };
  Kind kind = Kind::execute;
  Request request;  // as one of the ranks wrote it, with the sizes of the lowest; error: process_set and name only
  std::uint32_t slot = kNoSlot;  // cache slot in which every rank is to keep this (execute only)
  // execute: how many ranks of the set have asked; the others have joined. With a slot: all.
  std::int32_t contributing = 0;

  // allgather: rows[tensor][rank of set]; alltoall: rows[source][destination]; else empty. A joined rank has 0 rows.
  std::vector<std::vector<std::int64_t>> rows;

  Status status;
  // error: the global ranks whose submission of the name ends, ascending. A rank that is not listed either has none or
  // has already submitted the name anew, which this error does not touch.
  std::vector<std::int32_t> ranks;
  std::int32_t last_joined = -1;
  Schedule schedule{};  // lock

  bool operator==(const Response&) const = default;
};

// From the coordinator to every rank. Responses are performed in this order.
struct CoordinatorMessage {
  // An entry is either a whole response or a slot of the cache, whose response every rank knows.
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
