// hvdrun's own options: their names, what --help says of them, and where CLI11 puts what was typed. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/cli/command_line.h"

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11's
class App;
}

namespace hvd::launcher {

// What was typed of one program, before it is known to be right.
struct TypedOfProgram {
  std::string num_proc;
  std::string envlist;
  bool module = false, python = false, no_python = false;
};

// And of the job.
struct Typed {
  CommandLine line;
  std::vector<std::string> mca;  // "name=value"
  std::string input = "0";
  std::string ranks_per_host, nodes, node_rank, genvlist;
  std::string bind_to, map_by, rank_by, cpu_set;
  std::string launcher;
  std::string ssh_port, slots_per_host, gpus_per_rank;
  std::vector<std::string> interfaces;
  std::string tee, redirects, display;
  std::vector<std::string> output;
  std::string completion;
  bool by_mpi = false, by_gloo = false;
  double timeout_seconds = 0;
  double grace_seconds = 1;
  std::optional<double> lease_seconds;
  double start_timeout_seconds = 0;
  bool run_as_root = false;
  bool other_options = false;
  bool version = false;
};

void add_options_of_program(CLI::App& app, ProgramLine& program, TypedOfProgram& typed);

void add_options_of_job(CLI::App& app, Typed& typed);

// What --help prints.
std::string help_text(const CLI::App& app);

}  // namespace hvd::launcher
