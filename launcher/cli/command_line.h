// hvdrun's command line, as mpirun, mpiexec, horovodrun and torchrun write it. Pure: reads no file, no environment,
// starts nothing.
//
// Everything from a program's name on belongs to the program and is not looked at, up to an argument that is a colon:
// after it comes another program of the same job, with options of its own. Long options may have one dash or two
// (-np 4, --np 4, -output-filename DIR), with the value in the next argument or behind an equals sign.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "launcher/plan/binding.h"
#include "launcher/plan/gpus.h"
#include "launcher/plan/slots.h"
#include "launcher/plan/start_command.h"

namespace hvd::launcher {

// One of the programs of a job.
struct ProgramLine {
  std::optional<int> num_proc;
  std::string hosts;                    // of -H; empty: not given
  std::string hostfile;                 // its path; empty: not given
  std::vector<std::string> exports;     // of -x, "VAR" or "VAR=value", in the order given
  std::string working_directory;        // empty: hvdrun's own
  std::vector<std::string> command;     // the program's name and its arguments
  std::vector<std::string> for_mpirun;  // the options as they were typed, without those that mpirun does not have
  bool operator==(const ProgramLine&) const = default;
};

struct CommandLine {
  StartedBy started_by = StartedBy::automatic;
  RemoteShell remote_shell;
  std::vector<std::string> network_interfaces;  // those that may be used; empty: all
  std::optional<Duration> start_timeout;        // of agents and ranks; empty: each its default
  std::optional<Duration> lease;                // how long a silent host counts as there; empty: each its default
  bool dry_run = false;

  std::vector<ProgramLine> programs;                     // at least one; their ranks follow each other
  std::vector<std::string> exports;                      // as a program's, for all; a program's own come after them
  std::vector<std::pair<std::string, std::string>> mca;  // of -mca: name and value
  std::string config_file;                               // its path; empty: not given
  bool oversubscribe = false;
  bool no_oversubscribe = false;      // the slots of this host count, too, where no hosts are named
  std::optional<int> nodes;           // of the hosts, the first so many
  bool no_local = false;              // of the hosts, the others
  std::optional<int> ranks_per_host;  // then hosts without a number have so many slots
  Binding binding;
  std::vector<int> cpu_set;  // ascending; empty: all that hvdrun may use
  bool report_bindings = false;
  bool display_map = false;
  std::optional<SlotsRule> slots_per_host;
  std::optional<GpusPerRank> gpus_per_rank;  // empty: CUDA_VISIBLE_DEVICES stays as it is
  std::string output_directory;              // empty: output goes to the terminal alone
  bool files_only = false;                   // output goes to the files there alone
  bool tag_output = false;
  bool timestamp_output = false;
  bool merge_errors = false;
  std::optional<int> input_rank = 0;  // the one that reads hvdrun's standard input; empty: none, or all
  bool input_to_all = false;
  std::optional<Duration> timeout;  // of the job
  bool verbose = false;
  bool quiet = false;  // no notes
  Duration grace{};

  std::vector<std::string> notes;  // about options that change nothing; each a line for whoever typed them
  bool launcher_is_given = false;  // by --launcher, --mpi or --gloo
  bool check_build = false;        // that is all, then
  // Set by --help, --version and the like: to be printed, and that is all.
  std::optional<std::string> information;
  bool operator==(const CommandLine&) const = default;
};

// Arguments without hvdrun's own name. Throws InvalidArgument, with a text for whoever typed them.
CommandLine parse_command_line(const std::vector<std::string>& arguments);

// What mpirun gets, without its own name. Variables of the whole job it finds in its environment; where there may be
// other hosts, they are named as well (-x), since Open MPI hands on by itself on its own host only.
std::vector<std::string> mpirun_arguments(const CommandLine& line);

}  // namespace hvd::launcher
