// hvd-simulate: simulates the control plane in jobs of any size. `hvd simulate` starts it; see docs/simulation.md.
#include <cstdio>
#include <fstream>
#include <stdexcept>

#include "simulation/command_line.h"
#include "simulation/experiment.h"
#include "simulation/report.h"

namespace hvd::simulation {
namespace {

constexpr int kFailed = 1;
constexpr int kUsageError = 2;

void show(const std::string& text) {
  std::fputs(text.c_str(), stdout);
  std::fflush(stdout);
}

// Called before simulating, so that an invalid name is reported at once.
std::ofstream open_json(const std::string& path) {
  std::ofstream file;
  if (path.empty()) return file;
  file.open(path);
  if (!file) throw std::invalid_argument("--json " + path + ": cannot write this file");
  return file;
}

// Returns what --json writes.
std::string run(const Settings& settings) {
  show(heading(settings));
  if (settings.calibrates) {
    const Calibration calibration = calibrate(settings.job);
    show(calibration_table(calibration));
    return json_text(settings, calibration);
  }
  std::vector<Experiment> experiments;
  for (const int ranks : settings.curve ? curve_sizes(settings.job.ranks) : std::vector{settings.job.ranks}) {
    Job job = settings.job;
    job.ranks = ranks;
    experiments.push_back(simulate(job, ranks == settings.job.ranks ? settings.lost : std::nullopt));
  }
  show(table(experiments.back()));
  if (settings.curve) show(curve_table(experiments));
  return json_text(settings, experiments);
}

void perform(const std::vector<std::string>& arguments) {
  const Settings settings = parse_command_line(arguments);
  if (!settings.information.empty()) return show(settings.information);
  std::ofstream file = open_json(settings.json);
  const std::string report = run(settings);
  if (!file.is_open()) return;
  file << report;
  if (!file.flush()) throw std::runtime_error("--json " + settings.json + ": writing failed");
}

}  // namespace
}  // namespace hvd::simulation

int main(int argc, char** argv) {
  using namespace hvd::simulation;
  try {
    perform({argv + 1, argv + argc});
    return 0;
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr, "hvd simulate: %s (--help shows the options)\n", error.what());
    return kUsageError;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "hvd simulate: %s\n", error.what());
    return kFailed;
  }
}
