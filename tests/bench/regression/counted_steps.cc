// Steps that repeat, so that what one of them takes can be counted: each allreduces tensors of 8 bytes by name.
//
//   hvdrun -np 2 counted_steps --tensors 10 --json FILE     system calls of a step, all threads of all ranks together
//   valgrind --tool=callgrind --toggle-collect=take_counted_steps counted_steps
//                                                           instructions of the calling thread, in a job of one
//
// Steps are warmed up first. Unless HVD_SCHEDULE_LOCK=0, most of those that count must be locked.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <hvd.hpp>
#include <nlohmann/json.hpp>

#include "system_calls.h"

namespace {

constexpr std::size_t kElements = 2;
constexpr int kBytes = kElements * sizeof(float);
constexpr int kWarmUpSteps = 200;  // and until then a schedule is found

struct Tensor {
  std::array<float, kElements> input{};
  std::array<float, kElements> output{};
  hvd::Options options;
};

std::vector<Tensor> make_tensors(int count) {
  std::vector<Tensor> tensors(static_cast<std::size_t>(count));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    tensors[i].input.fill(static_cast<float>(hvd::rank() + 1));
    tensors[i].options.name = "tensor." + std::to_string(i);
  }
  return tensors;
}

void check(const std::vector<Tensor>& tensors) {
  const int ranks = hvd::size();
  const auto sum = static_cast<float>(ranks * (ranks + 1) / 2);
  for (const Tensor& tensor : tensors) {
    if (tensor.output != std::array{sum, sum}) throw std::runtime_error("wrong values in " + tensor.options.name);
  }
}

double locked_steps() { return hvd::metrics().at("locked_steps"); }

void check_lock(double locked, int steps) {
  const char* const setting = std::getenv("HVD_SCHEDULE_LOCK");
  const bool wanted = setting == nullptr || std::strcmp(setting, "0") != 0;
  if (wanted ? locked < 0.5 * steps : locked > 0) {
    throw std::runtime_error(std::to_string(static_cast<int>(locked)) + " of " + std::to_string(steps) +
                             " steps were locked");
  }
}

void take(std::vector<Tensor>& tensors, int steps) {
  if (tensors.size() == 1) {
    Tensor& only = tensors.front();
    for (int step = 0; step < steps; ++step) hvd::allreduce(only.input, only.output, hvd::sum, only.options);
    return;
  }
  std::vector<hvd::Future<void>> under_way;
  for (int step = 0; step < steps; ++step) {
    for (Tensor& tensor : tensors) {
      under_way.push_back(hvd::allreduce_async(tensor.input, tensor.output, hvd::sum, tensor.options));
    }
    for (auto& future : under_way) future.get();
    under_way.clear();
  }
}

}  // namespace

// By this name valgrind finds the steps that count.
extern "C" [[gnu::noinline]] void take_counted_steps(std::vector<Tensor>& tensors, int steps) { take(tensors, steps); }

namespace {

struct Options {
  int tensors = 1;
  int rounds = 40;
  int steps = 50;
  std::string json;
};

void write(const Options& options, std::vector<double> counts) {
  std::sort(counts.begin(), counts.end());
  const nlohmann::json result{
      {"bytes", options.tensors * kBytes}, {"min", counts.front()}, {"median", counts[counts.size() / 2]}};
  std::ofstream file(options.json);
  file << nlohmann::json{{"results", {result}}}.dump(1) << '\n';
  if (!file.flush()) throw std::runtime_error("cannot write " + options.json);
}

void run(const Options& options) {
  std::optional<hvd::bench::SystemCalls> system_calls;
  if (!options.json.empty()) system_calls.emplace();  // before hvd starts threads
  const hvd::Session session;
  std::vector<Tensor> tensors = make_tensors(options.tensors);
  take(tensors, kWarmUpSteps);
  const double locked = locked_steps();
  std::vector<double> counts;  // by round
  for (int round = 0; round < options.rounds; ++round) {
    const double before = system_calls ? system_calls->so_far() : 0;
    take_counted_steps(tensors, options.steps);
    if (system_calls) counts.push_back((system_calls->so_far() - before - 1) / options.steps);  // without its own
  }
  check_lock(locked_steps() - locked, options.rounds * options.steps);
  check(tensors);
  if (system_calls) {
    hvd::allreduce(counts);
    if (hvd::rank() == 0) write(options, counts);
  }
  hvd::barrier();  // nobody leaves while others still work
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Takes steps that repeat, and counts what a step takes.");
  app.add_option("--tensors", options.tensors, "Of a step; a single one is reduced synchronously")
      ->check(CLI::PositiveNumber);
  app.add_option("--rounds", options.rounds, "In which steps are counted")->check(CLI::PositiveNumber);
  app.add_option("--steps", options.steps, "Of a round")->check(CLI::PositiveNumber);
  app.add_option("--json", options.json, "Count system calls; write the least and the median round's into this file");
  CLI11_PARSE(app, argc, argv);
  try {
    run(options);
    return EXIT_SUCCESS;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "counted_steps: %s\n", error.what());
    return EXIT_FAILURE;
  }
}
