// The command line of hvd-simulate. Pure: reads no file and no environment.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "simulation/control_plane.h"

namespace hvd::simulation {

struct Settings {
  Job job;
  bool curve = false;       // also simulate jobs of other sizes
  std::optional<int> lost;  // a rank that dies
  bool calibrates = false;  // calibrate instead of simulating
  std::string json;         // empty: no file
  std::string information;  // not empty: the text to print instead of simulating
};

// Parses the arguments, without the program's name. Throws std::invalid_argument with a one-line message for the user.
Settings parse_command_line(const std::vector<std::string>& arguments);

}  // namespace hvd::simulation
