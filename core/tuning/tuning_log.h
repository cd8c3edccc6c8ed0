// Formats the autotuner's samples as comma-separated values. Pure: the caller writes the lines.
#pragma once

#include <string>

#include "core/tuning/knobs.h"

namespace hvd {

// A sequence of steps with the same knobs.
struct TuningSample {
  enum class Phase { warm_up, search, comparison };

  int number = 0;  // from 1
  Phase phase = Phase::warm_up;
  Knobs knobs;
  double seconds_per_step = 0;  // medians over its steps
  double seconds_per_byte = 0;
};

// Lines without line ends. cycle_time_ms, tensor_fusion_threshold and score have the names and units of Horovod's log,
// so that scripts for it work: the coalescing time, megabytes, bytes per microsecond.
std::string tuning_log_header();
std::string tuning_log_row(const TuningSample& sample);

}  // namespace hvd
