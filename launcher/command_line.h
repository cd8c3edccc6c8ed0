// hvdrun's command line, as mpirun and horovodrun write it. Pure: reads no file, no environment, starts nothing.
//
// Everything from the program's name on belongs to the program and is not looked at. Long options may have one dash
// or two (-np 4, --np 4, -output-filename DIR), with the value in the next argument or behind an equals sign.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/base/clock.h"

namespace hvd::launcher {

struct CommandLine {
  std::optional<int> num_proc;
  std::string hosts;                 // of -H; empty: not given
  std::vector<std::string> exports;  // of -x, "VAR" or "VAR=value", in the order given
  std::string output_directory;      // empty: output goes to the terminal alone
  bool tag_output = false;
  bool verbose = false;
  Duration grace{};
  std::vector<std::string> program;  // its name and its arguments

  // Set by --help and --version: to be printed, and that is all.
  std::optional<std::string> information;
};

// Arguments without hvdrun's own name. Throws InvalidArgument, with a text for whoever typed them.
CommandLine parse_command_line(const std::vector<std::string>& arguments);

}  // namespace hvd::launcher
