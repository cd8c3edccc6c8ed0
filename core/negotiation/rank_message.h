// What ranks tell the coordinator. Plain values; wire.h turns them into bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "core/submission/request.h"

namespace hvd {

// From a rank to the coordinator.
struct RankMessage {
  // Number of CoordinatorMessages that this rank had applied when it wrote this: tells the coordinator which
  // generation of cache slots the hits mean.
  std::uint64_t applied = 0;
  std::vector<std::uint32_t> hits{};  // cache slots this rank is ready for, ascending; a bit vector on the wire
  std::vector<Request> requests{};    // what is not in the cache; a join is a request too
  bool shut_down = false;             // this rank is leaving

  bool operator==(const RankMessage&) const = default;
};

}  // namespace hvd
