// Measures the time of a row: the operations on its tensors, as in a user's program, and the statistics of their times;
// and reports it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tools/bench/command_line.h"

namespace hvd::bench {

// Returns the smallest value that at least `share` (in (0, 1]) of the values do not exceed. `values` must not be empty.
double quantile(std::vector<double> values, double share);

// The result of a row.
struct Measured {
  std::int64_t bytes = 0;  // of the larger of a rank's buffers, all tensors together
  std::int64_t tensors = 0;
  int calls = 1;  // per round
  int rounds = 0;
  double min_us = 0;  // over the rounds
  double median_us = 0;
  double p99_us = 0;
  double algbw = 0;         // 10^9 bytes per second of the median time
  double busbw = 0;         // algbw times busbw_factor()
  std::int64_t errors = 0;  // wrong elements, over all ranks and rounds
};

// All ranks must call it with the same arguments; each gets the same result.
//
// A round: rewrite the tensors, wait at a barrier, then call and wait, many times in a row if a call is short. A rank's
// time of the round is the time per call; the slowest rank's time counts. After the timed part, once all ranks have
// finished, each rank checks its results. The numbers of calls and rounds are derived from the first ones, identically
// on all ranks.
Measured measure(const Settings& settings, const TensorSet& row);

// ---- Results: as a table for people and as JSON for programs. Pure.

struct Job {
  int ranks = 1;
  int hosts = 1;
  std::string version;  // of hvd
};

// Lines that begin with #: what is measured, where, and the names of the columns.
std::string heading(const Settings& settings, const Job& job);
std::string table_row(const Settings& settings, const Measured& row);
// What --json writes.
std::string json_text(const Settings& settings, const Job& job, const std::vector<Measured>& rows);

}  // namespace hvd::bench
