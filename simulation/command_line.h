// The command line of hvd-simulate. Pure: reads no file and no environment.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "simulation/control_plane.h"

namespace hvd::simulation {

struct Settings {
  Job job;
  bool curve = false;       // jobs of other sizes too
  std::optional<int> lost;  // a rank that dies
  bool calibrates = false;  // instead of all that
  std::string json;         // empty: no file
  std::string information;  // not empty: to be printed, and that is all
};

// Arguments without the program's own name. Throws std::invalid_argument, with one line for whoever typed them.
Settings parse_command_line(const std::vector<std::string>& arguments);

}  // namespace hvd::simulation
