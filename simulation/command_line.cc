#include "simulation/command_line.h"

#include <CLI/CLI.hpp>
#include <cmath>
#include <stdexcept>

#include "simulation/experiment.h"

namespace hvd::simulation {

namespace {

constexpr int kMaxRanks = 1'000'000;
constexpr int kMaxTensors = 100'000;
constexpr double kMaxMicroseconds = 1e9;

const char* const kUsage = "Usage: hvd simulate [--ranks N] [--tensors N] [options]";

const char* const kExplanation =
    R"(Simulates how the ranks of a job agree on what to do: the real control plane, on a virtual clock. Every rank submits
all tensors, which are new, and does so again, when they are known; then the schedule is locked. The same options and
seed give the same output. `hvd simulate` has one more option: --plot FILE (.png, .pdf, .svg) draws the curve with
matplotlib. docs/simulation.md says what is modelled and what the columns mean.)";

// The values of options that have other units in Settings.
struct Numbers {
  int tensors = 1000;
  double latency_us = 12;
  double overhead_us = 2;
  double jitter_us = 0;
};

Duration microseconds(double value) {
  return std::chrono::round<Duration>(std::chrono::duration<double, std::micro>(value));
}

// Options that --help shows together.
struct Group {
  CLI::App& app;
  const char* name;

  void add(const char* option, auto& value, const char* help, const char* value_name,
           const CLI::Validator& range = {}) const {
    app.add_option(option, value, help)->check(range)->option_text(value_name)->group(name);
  }
};

void add_options(CLI::App& app, Numbers& numbers, Settings& settings) {
  const Group job{app, "The job"};
  job.add("--ranks", settings.job.ranks, "Default: 1024", "N", CLI::Range(1, kMaxRanks));
  job.add("--ranks-per-host", settings.job.ranks_per_host, "Default: 8", "N", CLI::Range(1, kMaxRanks));
  job.add("--tensors", numbers.tensors, "That every rank submits in each round. Default: 1000", "N",
          CLI::Range(1, kMaxTensors));
  job.add("--kill", settings.lost, "This rank dies in the middle of a further round", "RANK");
  job.add("--seed", settings.job.seed, "Of jitter and drops. Default: 1", "N");

  const Group network{app, "The network between hosts"};
  const CLI::Range time(0.0, kMaxMicroseconds);
  network.add("--latency-us", numbers.latency_us, "Of a message. Default: 12", "US", time);
  network.add("--overhead-us", numbers.overhead_us, "Of sender and receiver, for a message. Default: 2", "US", time);
  network.add("--bandwidth-gbit", settings.job.network.between_hosts.gbit, "Of a host, in each direction. Default: 25",
              "GBIT", CLI::Range(1e-6, 1e6));
  network.add("--jitter-us", numbers.jitter_us,
              "What a message takes longer, on average; exponentially\n"
              "distributed. Default: 0",
              "US", time);
  network.add("--drop", settings.job.network.drop,
              "Share of messages that get lost, and are sent again after 200 ms. Default: 0", "P",
              CLI::Range(0.0, 0.99));

  const char* const output = "What to do";
  app.add_flag("--curve", settings.curve, "Jobs of 8 ranks and more, up to --ranks")->group(output);
  app.add_flag("--calibrate", settings.calibrates,
               "Measure what work costs here, in jobs of 64 to 1024\n"
               "virtual ranks, and compare with what the model says")
      ->group(output);
  app.add_option("--json", settings.json, "Write the results into this file too")->option_text("FILE")->group(output);
  app.set_help_flag("-h,--help", "Print this text")->group(output);
}

std::string help_text(const CLI::App& app) {
  CLI::Formatter formatter;
  formatter.column_width(28);
  std::string options = formatter.make_groups(&app, CLI::AppFormatMode::Normal);
  for (auto gap = options.find("\n\n\n"); gap != std::string::npos; gap = options.find("\n\n\n")) options.erase(gap, 1);
  return std::string(kUsage) + "\n" + options + "\n" + kExplanation + "\n";
}

void apply(const Numbers& numbers, Settings& settings) {
  NetworkParameters& network = settings.job.network;
  if (settings.lost && (*settings.lost < 0 || *settings.lost >= settings.job.ranks)) {
    throw std::invalid_argument("--kill " + std::to_string(*settings.lost) + ": the job has " +
                                std::to_string(settings.job.ranks) + " ranks, from 0");
  }
  for (const double number :
       {numbers.latency_us, numbers.overhead_us, network.between_hosts.gbit, numbers.jitter_us, network.drop}) {
    if (std::isnan(number)) throw std::invalid_argument("nan is no number to simulate with");
  }
  settings.job.operations = gradients(numbers.tensors);
  network.between_hosts.latency = microseconds(numbers.latency_us);
  network.between_hosts.overhead = microseconds(numbers.overhead_us);
  network.jitter = microseconds(numbers.jitter_us);
}

}  // namespace

Settings parse_command_line(const std::vector<std::string>& arguments) {
  CLI::App app;
  Settings settings;
  settings.job.ranks = 1024;
  Numbers numbers;
  add_options(app, numbers, settings);
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));  // CLI11 takes them from the back
  } catch (const CLI::CallForHelp&) {
    settings.information = help_text(app);
    return settings;
  } catch (const CLI::ParseError& error) {
    throw std::invalid_argument(error.what());
  }
  apply(numbers, settings);
  return settings;
}

}  // namespace hvd::simulation
