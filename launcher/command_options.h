// hvdrun's options: their names, what --help says of them, and where CLI11 puts what was typed. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/command_line.h"

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11's
class App;
}

namespace hvd::launcher {

// What was typed, before it is known to be right.
struct Typed {
  CommandLine line;
  ProgramLine program;
  std::string num_proc;
  std::vector<std::string> mca;  // "name=value"
  std::string input = "0";
  std::string bind_to, map_by, rank_by;
  std::string launcher;
  std::string ssh_port, interfaces, slots_per_host, gpus_per_rank;
  bool by_mpi = false, by_gloo = false;
  double timeout_seconds = 0;
  double grace_seconds = 1;
  std::optional<double> lease_seconds;
  double start_timeout_seconds = 0;
  bool run_as_root = false;
  bool version = false;
};

// Of one program; `typed_number` of processes.
void add_options_of_program(CLI::App& app, ProgramLine& program, std::string& typed_number);

void add_options_of_job(CLI::App& app, Typed& typed);

// What --help prints.
std::string help_text(const CLI::App& app);

}  // namespace hvd::launcher
