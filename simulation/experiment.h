// What hvd-simulate does: simulates a job from its first round to its last, once with and once without the processors'
// time, and determines the model's costs by timing the real classes on this machine, in jobs of virtual ranks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "simulation/control_plane.h"
#include "simulation/horovod.h"

namespace hvd::simulation {

// The requests of the ranks in each round: the gradients of a transformer, by name and shape.
std::vector<OperationSpec> gradients(int count);

// ---- Experiments

struct Phase {
  std::string name;       // new, cached, locked
  Round round;            // with the processors' time
  Duration network_time;  // without it
};

struct Experiment {
  int ranks = 0;
  int hosts = 0;
  int max_neighbours = 0;
  std::vector<Phase> phases;
  HorovodRound horovod;
  std::optional<Loss> loss;
};

// 100,000 ranks and 1,000 operations take half a minute on two processors and 2 GB.
Experiment simulate(const Job& job, std::optional<int> lost);

// From 8 up to the size of the job.
std::vector<int> curve_sizes(int ranks);

// ---- Calibration

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
