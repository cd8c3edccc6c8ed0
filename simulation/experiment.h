// Simulates a job from its first round to its last, once with and once without the processors' time.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "simulation/control_plane.h"
#include "simulation/horovod.h"

namespace hvd::simulation {

struct Phase {
  std::string name;       // new, cached, locked
  Round round;            // with the processors' time
  Duration network_time;  // without it
};

struct Experiment {
  int ranks = 0;
  int hosts = 0;
  int most_neighbours = 0;
  std::vector<Phase> phases;
  HorovodRound horovod;
  std::optional<Loss> loss;
};

// 100,000 ranks and 1,000 operations take half a minute on two processors and 2 GB.
Experiment simulate(const Job& job, std::optional<int> lost);

// From 8 up to the size of the job.
std::vector<int> curve_sizes(int ranks);

}  // namespace hvd::simulation
