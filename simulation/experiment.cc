#include "simulation/experiment.h"

#include <future>

namespace hvd::simulation {

namespace {

struct Run {
  int hosts = 0;
  int most_neighbours = 0;
  std::vector<Round> rounds;
  std::optional<Loss> loss;
};

Run run(const Job& job, const Costs& costs, std::optional<int> lost) {
  ModelProcessor processor(costs);
  ControlPlane plane(job, processor);
  Run run{.hosts = plane.hosts(), .most_neighbours = plane.most_neighbours(), .rounds = {}, .loss = {}};
  run.rounds.push_back(plane.negotiate());
  run.rounds.push_back(plane.negotiate());
  if (run.rounds.back().locks) run.rounds.push_back(plane.follow_schedule());
  if (lost) run.loss = plane.lose(*lost, run.rounds[1].time / 2);
  return run;
}

const char* name_of(const Round& round, std::size_t number) {
  if (number == 2) return "locked";
  return round.requests == 0 ? "cached" : "new";
}

}  // namespace

Experiment simulate(const Job& job, std::optional<int> lost) {
  auto network_alone = std::async(std::launch::async, [&job] { return run(job, Costs{}, std::nullopt); });
  const Run whole = run(job, kMeasuredCosts, lost);
  const Run network = network_alone.get();
  Experiment experiment{.ranks = job.ranks,
                        .hosts = whole.hosts,
                        .most_neighbours = whole.most_neighbours,
                        .phases = {},
                        .horovod = horovod_round({.ranks = job.ranks,
                                                  .tensors = job.operations.size(),
                                                  .request_bytes = whole.rounds[0].said_bytes,
                                                  .answer_bytes = whole.rounds[0].answer_bytes},
                                                 job.network),
                        .loss = whole.loss};
  for (std::size_t i = 0; i < whole.rounds.size(); ++i) {
    const Round& round = whole.rounds[i];
    experiment.phases.push_back({name_of(round, i), round, network.rounds[i].time});
  }
  return experiment;
}

std::vector<int> curve_sizes(int ranks) {
  std::vector<int> sizes;
  for (const int size : {8, 64, 256, 1024, 4096, 16'384, 27'360, 65'536}) {
    if (size < ranks) sizes.push_back(size);
  }
  sizes.push_back(ranks);
  return sizes;
}

}  // namespace hvd::simulation
