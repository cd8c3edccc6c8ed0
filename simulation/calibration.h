// Determines the model's costs: times the real classes on this machine, in jobs of virtual ranks.
#pragma once

#include <vector>

#include "simulation/control_plane.h"

namespace hvd::simulation {

// One round with every node's work timed, and as the model predicts it.
struct Comparison {
  int ranks = 0;
  const char* round = "";
  Duration measured{};
  Duration predicted{};
  Duration measured_work{};  // of all ranks together
  Duration predicted_work{};
};

struct Calibration {
  int fitted_ranks = 0;  // ranks of the runs that the costs were fitted to
  Costs costs{};
  std::vector<Comparison> comparisons;
};

// Takes about ten seconds with 1,000 operations. The number of ranks in `job` is ignored.
Calibration calibrate(const Job& job);

}  // namespace hvd::simulation
