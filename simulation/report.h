// Formats results: as tables for people and as JSON for programs. Pure.
#pragma once

#include <string>
#include <vector>

#include "simulation/command_line.h"
#include "simulation/experiment.h"

namespace hvd::simulation {

// Lines that begin with #: what is simulated.
std::string heading(const Settings& settings);
std::string table(const Experiment& experiment);
std::string curve_table(const std::vector<Experiment>& experiments);
std::string calibration_table(const Calibration& calibration);

// What --json writes.
std::string json_text(const Settings& settings, const std::vector<Experiment>& experiments);
std::string json_text(const Settings& settings, const Calibration& calibration);

}  // namespace hvd::simulation
