// What hvd costs besides moving and adding bytes: a program like its users' own, under hvdrun.
//
//   hvdrun -np 4 bench_control_plane                a short table, from rank 0
//   hvdrun -np 4 bench_control_plane --json FILE
//
// - a step, with a locked schedule and without (HVD_SCHEDULE_LOCK=0): the gradients of a ResNet-50 by name, of a few
//   floats each, are allreduced with allreduce_async, and then waited for one after the other. CPU time is that of the
//   whole process, its loop and its options included, so of the thread that submits and of the engine's. Subtracted is
//   `collective_cpu_seconds` of hvd::metrics(), that is CPU time inside backends: publishing, reducing, gathering, and
//   waiting for other ranks meanwhile. What remains, on average, is submission, negotiation, fusion, completion, and
//   waking and switching threads. Measured in rounds of a few steps; each rank rewrites its tensors before a round and
//   checks them after it, outside of the time.
// - breaks: how much longer steps take if in every 50th there is a tensor that was never there before. Rounds of 50
//   steps with such a tensor in the first and without one take turns; how much longer the first four take, by the
//   median of the rounds' differences, is what a break costs. A step begins by writing all gradients, as a training
//   does. Once with a few floats in each, and once with as many as they have in a ResNet-50 (--real-breaks).
//
// - process sets, with three ranks or more: a synchronous allreduce of 8 bytes in the set of ranks 0 and 1, with
// nothing
//   else and while all ranks reduce 64 MB.
//
// A schedule that is given up for a while, because a rank was late on a busy machine, shows in `locked_buckets`, not in
// the median of the messages. Rank 0 coordinates and does most. Times depend on what else runs: compare only within a
// run. What a synchronous operation takes is what `hvd bench` measures.
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <functional>
#include <iterator>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <hvd.hpp>
#include <nlohmann/json.hpp>

#include "tools/bench/command_line.h"

namespace {

constexpr int kWarmUpRounds = 20;   // and until then a schedule is found
constexpr double kExact = 1 << 24;  // whole numbers up to here are exact in a float
constexpr int kMaxSteps = 20;       // in a round
constexpr int kShortOnes = 100;     // in a round of operations in sets
constexpr std::size_t kLargeElements = 16 << 20;
constexpr int kBreakSteps = 50;   // in a round of those with and without a break
constexpr int kBreakAffects = 4;  // of them, the first: those until steps are locked again, and some more

struct Options {
  std::size_t tensors = 160;
  std::size_t elements = 2;
  int rounds = 300;
  int break_rounds = 40;
  int real_break_rounds = 10;
  int set_rounds = 20;
  std::string json;
};

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double process_cpu() {
  std::timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

struct Gradient {
  std::string name;
  std::size_t elements;
};

// As torchvision names the parameters, from the first layer on.
std::vector<std::string> resnet_names() {
  std::vector<std::string> names;
  const auto add_convolution = [&names](const std::string& convolution, const std::string& norm) {
    names.insert(names.end(), {convolution + ".weight", norm + ".weight", norm + ".bias"});
  };
  add_convolution("conv1", "bn1");
  const int blocks[] = {3, 4, 6, 3};
  for (int layer = 1; layer <= 4; ++layer) {
    for (int block = 0; block < blocks[layer - 1]; ++block) {
      const std::string prefix = "layer" + std::to_string(layer) + "." + std::to_string(block) + ".";
      for (const char* part : {"1", "2", "3"}) add_convolution(prefix + "conv" + part, prefix + "bn" + part);
      if (block == 0) add_convolution(prefix + "downsample.0", prefix + "downsample.1");
    }
  }
  names.insert(names.end(), {"fc.weight", "fc.bias"});
  return names;
}

// The first so many of a ResNet-50, and again with a number behind their names.
std::vector<Gradient> resnet_gradients(std::size_t count) {
  const std::vector<std::string> names = resnet_names();
  hvd::bench::TensorSet sizes = hvd::bench::resnet50();
  std::reverse(sizes.begin(), sizes.end());  // the last layer's come first there
  std::vector<Gradient> gradients;
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t known = i % names.size(), round = i / names.size();
    gradients.push_back(
        {names[known] + (round > 0 ? "." + std::to_string(round) : ""), static_cast<std::size_t>(sizes.at(known))});
  }
  return gradients;
}

// So many of them, with a few elements each.
std::vector<Gradient> small_gradients(const Options& options) {
  std::vector<Gradient> gradients = resnet_gradients(options.tensors);
  for (Gradient& gradient : gradients) gradient.elements = options.elements;
  return gradients;
}

// Tensors that are summed in place, over and over: exact for steps_per_round() steps.
class Tensors {
 public:
  explicit Tensors(const std::vector<Gradient>& gradients) {
    for (const Gradient& gradient : gradients) {
      values_.emplace_back(gradient.elements);
      calls_.push_back({.name = gradient.name});
    }
    under_way_.reserve(values_.size());
  }

  void allreduce() {
    for (std::size_t i = 0; i < values_.size(); ++i) {
      under_way_.push_back(hvd::allreduce_async(values_[i], hvd::sum, calls_[i]));
    }
    for (auto& future : under_way_) future.get();
    under_way_.clear();
  }

  static int steps_per_round() {
    if (hvd::size() == 1) return kMaxSteps;
    const double first = hvd::size() * kBases;  // no sum of the first step is more
    return std::clamp(static_cast<int>(1 + std::log(kExact / first) / std::log(hvd::size())), 1, kMaxSteps);
  }

  void rewrite(int round) {
    for (std::size_t tensor = 0; tensor < values_.size(); ++tensor) {
      std::fill(values_[tensor].begin(), values_[tensor].end(), value(round, tensor, hvd::rank()));
    }
  }

  void check(int round, int steps) const {
    for (std::size_t tensor = 0; tensor < values_.size(); ++tensor) {
      float expected = 0;
      for (int rank = 0; rank < hvd::size(); ++rank) expected += value(round, tensor, rank);
      expected *= static_cast<float>(std::pow(hvd::size(), steps - 1));
      for (const float found : values_[tensor]) {
        if (found == expected) continue;
        throw std::runtime_error("tensor " + std::to_string(tensor) + " holds " + std::to_string(found) +
                                 " instead of " + std::to_string(expected));
      }
    }
  }

 private:
  static constexpr int kBases = 7;

  static float value(int round, std::size_t tensor, int rank) {
    return static_cast<float>((static_cast<std::size_t>(round + rank) + tensor) % kBases);
  }

  std::vector<std::vector<float>> values_;
  std::vector<hvd::Options> calls_;
  std::vector<hvd::Future<void>> under_way_;
};

double metric(const char* name) { return hvd::metrics().at(name); }

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

double mean(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// The distribution of what was measured in each round, per step, in microseconds.
nlohmann::json spread(const std::vector<double>& seconds) {
  return {{"min", *std::min_element(seconds.begin(), seconds.end()) * 1e6},
          {"median", median(seconds) * 1e6},
          {"mean", mean(seconds) * 1e6}};
}

// By kind of time, and by how much the metrics grew, per step.
nlohmann::json measure_steps(const Options& options) {
  Tensors tensors(small_gradients(options));
  const int steps = Tensors::steps_per_round();
  std::vector<double> wall, cpu, messages;
  const auto run = [&](int round) {
    tensors.rewrite(round);
    const double messages_before = metric("control_messages");
    const double wall_before = now(), cpu_before = process_cpu();
    for (int i = 0; i < steps; ++i) tensors.allreduce();
    cpu.push_back((process_cpu() - cpu_before) / steps);
    wall.push_back((now() - wall_before) / steps);
    messages.push_back((metric("control_messages") - messages_before) / steps);
    tensors.check(round, steps);
  };
  for (int round = 0; round < kWarmUpRounds; ++round) run(round);
  wall.clear(), cpu.clear(), messages.clear();
  const auto before = hvd::metrics();
  for (int round = 0; round < options.rounds; ++round) run(round);
  const auto after = hvd::metrics();
  const auto per_step = [&](const char* name) { return (after.at(name) - before.at(name)) / options.rounds / steps; };
  const double collective_cpu_us = per_step("collective_cpu_seconds") * 1e6;
  return {{"tensors", options.tensors},
          {"elements", options.elements},
          {"steps", options.rounds * steps},
          {"wall_us", spread(wall)},
          {"cpu_us", spread(cpu)},
          {"collective_cpu_us", collective_cpu_us},
          // Of all rounds: of one round, too few calls are measured to know what its collectives took.
          {"control_cpu_us", mean(cpu) * 1e6 - collective_cpu_us},
          {"control_messages", median(messages)},
          {"buckets", per_step("buckets")},
          {"locked_buckets", per_step("locked_buckets")}};
}

double all_breaks() {
  double sum = 0;
  for (const auto& [name, value] : hvd::metrics()) sum += name.starts_with("breaks") ? value : 0;
  return sum;
}

nlohmann::json measure_breaks(const std::vector<Gradient>& gradients, int rounds) {
  Tensors tensors(gradients);
  std::vector<double> steps, with, without;  // the latter: of a round's first steps together
  double breaks = 0;
  const auto run = [&](int round, bool new_tensor) {
    const double breaks_before = all_breaks();
    std::vector<double> times;
    for (int i = 0; i < kBreakSteps; ++i) {
      const double before = now();
      tensors.rewrite(i);
      std::vector<float> other{1};
      std::optional<hvd::Future<void>> extra;
      if (new_tensor && i == 0) {
        extra = hvd::allreduce_async(other, hvd::sum, {.name = "new." + std::to_string(round)});
      }
      tensors.allreduce();
      if (extra) extra->get();
      times.push_back(now() - before);
      if (extra && other[0] != static_cast<float>(hvd::size())) throw std::runtime_error("the new sum is wrong");
    }
    tensors.check(kBreakSteps - 1, 1);
    const auto first_others = times.begin() + kBreakAffects;
    steps.insert(steps.end(), first_others, times.end());
    (new_tensor ? with : without).push_back(std::accumulate(times.begin(), first_others, 0.0));
    if (new_tensor) breaks += all_breaks() - breaks_before;
  };
  run(-1, false);
  steps.clear(), without.clear();
  for (int round = 0; round < rounds; ++round) {
    const bool first = round % 2 == 0;  // either is first in turn: machines become slower and faster
    run(round, first);
    run(round, !first);
  }
  std::vector<double> differences;
  std::transform(with.begin(), with.end(), without.begin(), std::back_inserter(differences), std::minus<>());
  std::size_t bytes = 0;
  for (const Gradient& gradient : gradients) bytes += gradient.elements * sizeof(float);
  const double extra = median(differences);
  return {{"tensors", gradients.size()},
          {"bytes", bytes},
          {"rounds", rounds},
          {"breaks", breaks / rounds},
          {"step_us", spread(steps)},
          {"break_us", extra * 1e6},
          {"share", extra / (kBreakSteps * median(steps))}};
}

// While an allreduce of all ranks is under way, and without one.
nlohmann::json measure_sets(int rounds) {
  if (hvd::size() < 3 || rounds == 0) return nullptr;
  const int pair = hvd::add_process_set({0, 1});
  const hvd::Options in_pair{.name = "short", .process_set = pair};
  const bool in_the_pair = hvd::rank() < 2;
  std::vector<float> large(kLargeElements, 1), small(2);
  std::vector<double> alone, beside, long_ones;
  const auto short_one = [&](std::vector<double>* times) {
    small.assign(2, 1);
    const double before = now();
    hvd::allreduce(small, hvd::sum, in_pair);
    if (times != nullptr) times->push_back(now() - before);
    if (small[1] != 2) throw std::runtime_error("the sum of the pair is wrong");
  };
  for (int round = 0; round < rounds; ++round) {
    for (int i = 0; in_the_pair && i < kShortOnes; ++i) short_one(i < kShortOnes / 2 ? nullptr : &alone);
    hvd::barrier();
    const double before = now();
    auto long_one = hvd::allreduce_async(large, hvd::max, {.name = "long"});
    for (int i = 0; in_the_pair && i < kShortOnes; ++i) short_one(long_one.ready() ? nullptr : &beside);
    long_one.get();
    long_ones.push_back(now() - before);
  }
  hvd::remove_process_set(pair);
  if (!in_the_pair) return nullptr;
  if (beside.empty()) throw std::runtime_error("no short operation ran beside a long one");
  return {{"long_us", spread(long_ones)},
          {"short_alone_us", spread(alone)},
          {"short_beside_us", spread(beside)},
          {"shorts_beside", beside.size()}};
}

nlohmann::json measure_all(const Options& options, bool lock) {
  setenv("HVD_SCHEDULE_LOCK", lock ? "1" : "0", 1);
  const hvd::Session session;
  nlohmann::json result{{"rank", hvd::rank()}, {"ranks", hvd::size()}, {"lock", lock}};
  result["step"] = measure_steps(options);
  result["breaks"] = nlohmann::json::array();
  if (lock && options.break_rounds > 0) {
    result["breaks"].push_back(measure_breaks(small_gradients(options), options.break_rounds));
  }
  if (lock && options.real_break_rounds > 0) {
    result["breaks"].push_back(measure_breaks(resnet_gradients(options.tensors), options.real_break_rounds));
  }
  if (lock) result["sets"] = measure_sets(options.set_rounds);
  return result;
}

void print(const nlohmann::json& result) {
  const auto time = [](const nlohmann::json& row, const char* which) { return row[which].get<double>(); };
  const nlohmann::json& step = result["step"];
  std::printf("%d ranks, schedule lock %s\n", result["ranks"].get<int>(), result["lock"].get<bool>() ? "on" : "off");
  std::printf("  step of %zu tensors: wall min %.1f median %.1f us; CPU min %.1f median %.1f mean %.1f us,",
              step["tensors"].get<std::size_t>(), time(step["wall_us"], "min"), time(step["wall_us"], "median"),
              time(step["cpu_us"], "min"), time(step["cpu_us"], "median"), time(step["cpu_us"], "mean"));
  std::printf(" of the mean in collectives %.1f us, outside %.1f us; %.2f messages, %.2f buckets\n",
              time(step, "collective_cpu_us"), time(step, "control_cpu_us"), time(step, "control_messages"),
              time(step, "buckets"));
  for (const nlohmann::json& row : result["breaks"]) {
    std::printf(
        "  step of %zu bytes: min %.1f median %.1f us; a new tensor in every %dth: %.1f us, %.2f %%; %.1f breaks\n",
        row["bytes"].get<std::size_t>(), time(row["step_us"], "min"), time(row["step_us"], "median"), kBreakSteps,
        time(row, "break_us"), time(row, "share") * 100, time(row, "breaks"));
  }
  if (!result.value("sets", nlohmann::json()).is_null()) {
    const nlohmann::json& sets = result["sets"];
    std::printf(
        "  8 bytes in a pair of ranks: median %.2f us; while all reduce 64 MB in %.0f us: min %.2f median %.2f"
        " mean %.2f us\n",
        time(sets["short_alone_us"], "median"), time(sets["long_us"], "median"), time(sets["short_beside_us"], "min"),
        time(sets["short_beside_us"], "median"), time(sets["short_beside_us"], "mean"));
  }
  std::fflush(stdout);
}

void run(const Options& options) {
  nlohmann::json results = nlohmann::json::array();
  for (const bool lock : {true, false}) {
    results.push_back(measure_all(options, lock));
    if (results.back()["rank"] == 0) print(results.back());
  }
  if (options.json.empty() || results.back()["rank"] != 0) return;
  cpu_set_t cpus;
  sched_getaffinity(0, sizeof cpus, &cpus);
  std::ofstream file(options.json);
  file << nlohmann::json{{"cpus", CPU_COUNT(&cpus)}, {"results", results}}.dump(1) << '\n';
  if (!file.flush()) throw std::runtime_error("cannot write " + options.json);
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Times what hvd costs besides moving and adding bytes. Start it with hvdrun.");
  app.add_option("--tensors", options.tensors, "In a step")->check(CLI::PositiveNumber);
  app.add_option("--elements", options.elements, "Floats in each of them")->check(CLI::PositiveNumber);
  app.add_option("--rounds", options.rounds, "To measure, of a few steps each")->check(CLI::PositiveNumber);
  app.add_option("--breaks", options.break_rounds, "Rounds with a new tensor")->check(CLI::NonNegativeNumber);
  app.add_option("--real-breaks", options.real_break_rounds, "Such rounds of gradients as large as they are")
      ->check(CLI::NonNegativeNumber);
  app.add_option("--sets", options.set_rounds, "Rounds of operations in process sets")->check(CLI::NonNegativeNumber);
  app.add_option("--json", options.json, "Rank 0: write the results into this file");
  CLI11_PARSE(app, argc, argv);
  try {
    run(options);
    return EXIT_SUCCESS;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return EXIT_FAILURE;
  }
}
