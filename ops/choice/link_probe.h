// Measures the link costs of the cost model (cost_model.h) at start; all ranks obtain the same values.
//
// All members are measured at once, on their ring, as in later use: in a step each sends to its right neighbour and
// receives from its left one.
//
//   latency          steps of one empty message; the fastest of a few batches
//   per_message      a step of many empty messages
//   per_byte         messages that grow by a factor of four, until the next one would take too long. Many links allow a
//                    burst before their rate applies: only the last and longest message counts, the fastest of a few
//   reduce_per_byte  one reduction, in cache
//
// Every rank uses the maximum over all ranks for each value, since ranks wait for the slowest. How far to continue is
// decided in the same way, so that all ranks take the same steps. It takes 15 ms at 10 Gb/s, 25 ms at 1 Gb/s, and up to
// 50 ms where a message takes a millisecond, if the ranks are not descheduled.
#pragma once

#include <functional>
#include <span>

#include "ops/choice/cost_model.h"
#include "ops/transport/transport.h"

namespace hvd {

struct LinkProbe {
  Transport& transport;
  // The ranks whose links are measured: global ranks, in ring order. The other ranks call too, and receive the result.
  std::span<const int> members;
  Deadline deadline;  // for all ranks to arrive, and for each wait
  std::function<TimePoint()> now = Clock::now;
};

// All ranks of the transport call together, before any collective. Returns the same on all. Throws the transport's
// errors.
LinkCosts measure_links(const LinkProbe& probe);

}  // namespace hvd
