// Declares hvdrun's own options for CLI11: their names, their --help texts, and the variables for their values. Pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/cli/command_line.h"

namespace CLI {  // NOLINT(readability-identifier-naming): CLI11's
class App;
}

namespace hvd::launcher {

// The values of a program's options as typed, not validated yet.
struct TypedOfProgram {
  std::string num_proc;
  std::string envlist;
  bool module = false, python = false, no_python = false;
};

// The values of the job's options as typed, not validated yet.
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

// The text that --help prints.
std::string help_text(const CLI::App& app);

// The script that completes hvdrun's options in a shell. `shell`: bash or zsh; throws InvalidArgument for another.
// `app` has all options. After the options, the script completes the program, and then the program's arguments with the
// shell's completion for that program.
std::string completion_script(const std::string& shell, const CLI::App& app);

}  // namespace hvd::launcher
