#include "simulation/calibration.h"

#include <algorithm>
#include <utility>

namespace hvd::simulation {

namespace {

constexpr int kFittedRanks = 64;
constexpr int kMostMeasuredRanks = 1024;
constexpr int kRepetitions = 5;

Job job_of(const Job& pattern, int ranks, std::size_t operations, bool rotated) {
  Job job = pattern;
  job.ranks = ranks;
  job.operations.resize(std::clamp<std::size_t>(operations, 1, job.operations.size()));
  job.alike = false;
  job.rotated = rotated;
  return job;
}

// Runs with one operation and with all separate the costs per message and per operation; in runs with a different order
// on each rank, no message is passed on without parsing. Few operations would fit into caches, and seem to cost less.
Costs fit(const Job& pattern) {
  Stopwatch stopwatch;
  const std::size_t all = pattern.operations.size();
  for (int repetition = 0; repetition < kRepetitions; ++repetition) {
    for (const auto& [operations, rotated] :
         {std::pair{std::size_t{1}, false}, {all, false}, {all / 2, true}, {all, true}}) {
      ControlPlane plane(job_of(pattern, kFittedRanks, operations, rotated), stopwatch);
      plane.negotiate();
      if (plane.negotiate().locks) plane.follow_schedule();
    }
  }
  return stopwatch.fit();
}

struct Timing {
  Duration round{};
  Duration work{};
};

// New, cached, and locked if a schedule was learned.
std::vector<Timing> time_rounds(const Job& job, Processor& processor) {
  ControlPlane plane(job, processor);
  std::vector<Timing> timings;
  const auto note = [&](auto perform) {
    const Duration before = processor.total();
    const Round round = perform();
    timings.push_back({round.time, processor.total() - before});
    return round.locks;
  };
  note([&] { return plane.negotiate(); });
  if (note([&] { return plane.negotiate(); })) note([&] { return plane.follow_schedule(); });
  return timings;
}

// The run with the least disturbance.
template <typename Project>
Duration shortest(const std::vector<std::vector<Timing>>& runs, std::size_t round, Project project) {
  Duration least = Duration::max();
  for (const auto& run : runs) least = std::min(least, project(run[round]));
  return least;
}

void compare(const Job& pattern, int ranks, Calibration& calibration) {
  constexpr const char* kRounds[] = {"new", "cached", "locked"};
  const std::size_t all = pattern.operations.size();
  std::vector<std::vector<Timing>> measured;
  for (int repetition = 0; repetition < kRepetitions; ++repetition) {
    Stopwatch stopwatch;
    measured.push_back(time_rounds(job_of(pattern, ranks, all, false), stopwatch));
  }
  ModelProcessor model(calibration.costs);
  const std::vector<Timing> predicted = time_rounds(job_of(pattern, ranks, all, false), model);
  for (std::size_t round = 0; round < predicted.size(); ++round) {
    calibration.comparisons.push_back(
        {.ranks = ranks,
         .round = kRounds[round],
         .measured = shortest(measured, round, [](const Timing& t) { return t.round; }),
         .predicted = predicted[round].round,
         .measured_work = shortest(measured, round, [](const Timing& t) { return t.work; }),
         .predicted_work = predicted[round].work});
  }
}

}  // namespace

Calibration calibrate(const Job& job) {
  Calibration calibration{.fitted_ranks = kFittedRanks, .costs = fit(job), .comparisons = {}};
  for (int ranks = kFittedRanks; ranks <= kMostMeasuredRanks; ranks *= 2) compare(job, ranks, calibration);
  return calibration;
}

}  // namespace hvd::simulation
