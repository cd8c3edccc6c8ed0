#include "simulation/experiment.h"

#include <algorithm>
#include <array>
#include <future>
#include <utility>

namespace hvd::simulation {

namespace {

constexpr std::int64_t kWidth = 1024;

struct Parameter {
  const char* name;
  Shape shape;
};

// The parameters of one layer, in the order in which backward produces their gradients.
std::array<Parameter, 12> layer() {
  return {{{"mlp.c_proj.bias", {kWidth}},
           {"mlp.c_proj.weight", {kWidth, 4 * kWidth}},
           {"mlp.c_fc.bias", {4 * kWidth}},
           {"mlp.c_fc.weight", {4 * kWidth, kWidth}},
           {"ln_2.bias", {kWidth}},
           {"ln_2.weight", {kWidth}},
           {"attn.c_proj.bias", {kWidth}},
           {"attn.c_proj.weight", {kWidth, kWidth}},
           {"attn.c_attn.bias", {3 * kWidth}},
           {"attn.c_attn.weight", {3 * kWidth, kWidth}},
           {"ln_1.bias", {kWidth}},
           {"ln_1.weight", {kWidth}}}};
}

}  // namespace

std::vector<OperationSpec> gradients(int count) {
  const auto parameters = layer();
  const int per_layer = static_cast<int>(parameters.size());
  std::vector<OperationSpec> specs;
  for (int i = 0; i < count; ++i) {
    const Parameter& parameter = parameters[static_cast<std::size_t>(i % per_layer)];
    const int number = (count - 1 - i) / per_layer;
    OperationSpec spec;
    spec.name = "optimizer0.transformer.h." + std::to_string(number) + "." + parameter.name;
    spec.op = ReduceOp::average;
    spec.tensors = {{DType::float32, parameter.shape}};
    specs.push_back(std::move(spec));
  }
  return specs;
}

// ---- Experiments

namespace {

struct Run {
  int hosts = 0;
  int max_neighbours = 0;
  std::vector<Round> rounds;
  std::optional<Loss> loss;
};

Run run(const Job& job, const Costs& costs, std::optional<int> lost) {
  ModelProcessor processor(costs);
  ControlPlane plane(job, processor);
  Run run{.hosts = plane.hosts(), .max_neighbours = plane.max_neighbours(), .rounds = {}, .loss = {}};
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
                        .max_neighbours = whole.max_neighbours,
                        .phases = {},
                        .horovod = horovod_round({.ranks = job.ranks,
                                                  .tensors = job.operations.size(),
                                                  .request_bytes = whole.rounds[0].request_bytes,
                                                  .response_bytes = whole.rounds[0].response_bytes},
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

// ---- Calibration

namespace {

constexpr int kFittedRanks = 64;
constexpr int kMaxMeasuredRanks = 1024;
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
  for (int ranks = kFittedRanks; ranks <= kMaxMeasuredRanks; ranks *= 2) compare(job, ranks, calibration);
  return calibration;
}

}  // namespace hvd::simulation
