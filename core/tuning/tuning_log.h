// The autotuner's samples as lines of comma-separated values. Pure: writing them is the caller's.
#pragma once

#include <string>

#include "core/tuning/knobs.h"

namespace hvd {

// A run of steps with the same knobs.
struct TuningSample {
  enum class Phase { warm_up, search, comparison };

  int number = 0;  // from 1
  Phase phase = Phase::warm_up;
  Knobs knobs;
  double seconds_per_step = 0;  // medians over its steps
  double seconds_per_byte = 0;
};

// Lines without their ends. cycle_time_ms, tensor_fusion_threshold and score are called what Horovod's log calls them
// and have its units, so that its readers' scripts find them: the coalescing time, megabytes, bytes per microsecond.
std::string tuning_log_header();
std::string tuning_log_row(const TuningSample& sample);

}  // namespace hvd
