// How long a row takes. All ranks call it alike; each gets the same answer.
//
// A round: rewrite the tensors, meet at a barrier, then call and wait, many times in a row where a call is short. A
// rank's time of the round is that per call; what counts is the slowest rank's. Outside of the time, and when all have
// done, each rank checks what it has got. How many calls and rounds there are follows from the first ones, and rank for
// rank alike.
#pragma once

#include <cstdint>

#include "bindings/cpp/bench/command_line.h"

namespace hvd::bench {

struct Measured {
  std::int64_t bytes = 0;  // of the larger of a rank's buffers, all tensors together
  std::int64_t tensors = 0;
  int calls = 1;  // in a round
  int rounds = 0;
  double min_us = 0;  // over the rounds
  double median_us = 0;
  double p99_us = 0;
  double algbw = 0;         // 10^9 bytes per second of the median time
  double busbw = 0;         // the same times busbw_factor()
  std::int64_t errors = 0;  // wrong elements, over all ranks and rounds
};

Measured measure(const Settings& settings, const TensorSet& row);

}  // namespace hvd::bench
