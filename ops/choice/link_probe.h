// Measures at start what the cost model (cost_model.h) needs to know of the links, and lets all ranks agree on it.
//
// Everything is measured on the ring of the members, all of them at once, as it will be used: in a step each sends to
// its right neighbour and receives from its left one.
//
//   latency          steps of one empty message; the fastest of a few batches
//   per_message      a step of many empty messages
//   per_byte         messages that grow four times each, until the next one would take too long. Many links let a burst
//                    pass before their rate counts: only the last and longest message does here, the fastest of a few
//   reduce_per_byte  one reduction, in cache
//
// Everyone takes the largest of all values for each: the ranks wait for the slowest. How far to go on is decided in the
// same way, so that all go equally far. It takes 15 ms at 10 Gb/s, 25 ms at 1 Gb/s, and up to 50 ms where a message
// takes a millisecond, as long as the machine lets the ranks run.
#pragma once

#include <functional>
#include <span>

#include "ops/choice/cost_model.h"
#include "ops/transport/transport.h"

namespace hvd {

struct LinkProbe {
  Transport& transport;
  // Whose links are measured: global ranks, in ring order. The transport's other ranks call too, and learn the result.
  std::span<const int> members;
  Deadline deadline;  // for all ranks to have come, and for each wait
  std::function<TimePoint()> now = Clock::now;
};

// All ranks of the transport call together, before any collective. The same result on all of them. Throws what the
// transport throws.
LinkCosts measure_links(const LinkProbe& probe);

}  // namespace hvd
