// Where the model's costs come from: the real classes, timed on this machine, in jobs of virtual ranks.
#pragma once

#include <vector>

#include "simulation/control_plane.h"

namespace hvd::simulation {

// The same round with every node's work timed, and as the model predicts it.
struct Comparison {
  int ranks = 0;
  const char* round = "";
  Duration measured{};
  Duration predicted{};
  Duration measured_work{};  // of all ranks together
  Duration predicted_work{};
};

struct Calibration {
  int fitted_ranks = 0;  // of the runs from which the costs are
  Costs costs{};
  std::vector<Comparison> comparisons;
};

// Takes about ten seconds with 1,000 operations. `job`: its ranks do not count.
Calibration calibrate(const Job& job);

}  // namespace hvd::simulation
