// Parses hvdrun's command line, which accepts the syntax of mpirun, mpiexec, horovodrun and torchrun. Pure: reads no
// file and no environment, starts nothing.
// All arguments from a program's name on belong to the program and are not parsed, up to an argument that is a colon:
// it separates the programs of a job, each with its own options. Long options may have one dash or two (-np 4, --np 4,
// -output-filename DIR), with the value in the next argument or after an equals sign.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "launcher/job/job.h"
#include "launcher/plan/binding.h"
#include "launcher/plan/host_resources.h"
#include "launcher/plan/slots.h"
#include "launcher/plan/start_command.h"

namespace hvd::launcher {

// One of the programs of a job.
struct ProgramLine {
  std::optional<int> num_proc;
  std::string hosts;                    // of -H; empty: not given
  std::string hostfile;                 // its path; empty: not given
  std::vector<std::string> exports;     // of -x, "VAR" or "VAR=value", in the order given
  std::string working_directory;        // empty: hvdrun's
  std::vector<std::string> command;     // the program's name and its arguments
  std::vector<std::string> for_mpirun;  // the options as typed, without those that mpirun does not have
  bool operator==(const ProgramLine&) const = default;
};

// What starts the processes, and how other hosts are reached.
struct StartOptions {
  StartedBy by = StartedBy::automatic;
  bool is_given = false;  // by --launcher, --mpi or --gloo
  RemoteShell remote_shell;
  std::vector<std::string> interfaces;  // the networks that may be used; empty: all
  std::optional<int> agent_port;        // agents listen there, on the hosts themselves
  std::string agent_addresses;          // a file that says where agents listen; empty: not given
  std::optional<Duration> timeout;      // for agents and ranks to start; empty: their defaults
  std::optional<Duration> lease;        // how long a host may be silent; empty: the defaults
  bool operator==(const StartOptions&) const = default;

  bool agents_listen() const;
};

// Where ranks run.
struct PlacementOptions {
  bool oversubscribe = false;
  bool no_oversubscribe = false;      // the slots of this host limit the job, too, if no hosts are named
  std::optional<int> nodes;           // use only so many of the hosts, the first ones
  bool no_local = false;              // do not use this host
  std::optional<int> ranks_per_host;  // also the slots of hosts without a number
  std::optional<SlotsRule> slots_per_host;
  Binding binding;
  std::vector<int> cpu_set;                  // ascending; empty: all CPUs that hvdrun may use
  std::optional<GpusPerRank> gpus_per_rank;  // empty: CUDA_VISIBLE_DEVICES is unchanged
  bool operator==(const PlacementOptions&) const = default;
};

struct CommandLine {
  StartOptions start;
  PlacementOptions placement;
  JobOptions job;

  std::vector<ProgramLine> programs;                     // at least one; ranks are numbered program by program
  std::vector<std::string> exports;                      // for all programs, before the program's own
  std::vector<std::pair<std::string, std::string>> mca;  // of -mca: name and value
  std::string config_file;                               // its path; empty: not given
  std::optional<int> input_rank = 0;  // the rank that reads hvdrun's standard input; empty: none, or all
  bool input_to_all = false;
  std::string discovery_script;   // a shell command that prints an elastic job's hosts; empty: they are fixed
  std::string pod_selector;       // of --cluster kubernetes: discovery_script lacks the file of addresses yet; or empty
  Duration discovery_interval{};  // from one run of it to the next
  bool dry_run = false;
  bool display_map = false;
  bool quiet = false;  // prints no notes

  bool gives_timeout = false;      // --timeout, perhaps 0: none
  std::vector<std::string> notes;  // lines for the user about options without effect
  bool check_build = false;        // only run `hvd doctor`
  // Set by --help, --version and the like: only print this text.
  std::optional<std::string> information;
  bool operator==(const CommandLine&) const = default;
};

// `arguments` does not include hvdrun's own name. Throws InvalidArgument with a text for the user.
CommandLine parse_command_line(const std::vector<std::string>& arguments);

// The arguments for mpirun, without its own name. It has the variables of the whole job in its environment, which Open
// MPI passes to its own host alone: `names_variables` also names them with -x. Hydra (MPICH, Intel MPI) has no -x.
std::vector<std::string> mpirun_arguments(const CommandLine& line, bool names_variables);

// Horovod's configuration file (--config-file): YAML whose keys correspond to options of horovodrun.
struct ConfigOptions {
  std::vector<std::string> options;       // as they would be typed
  std::vector<std::string> unknown_keys;  // "section.key"
};

// If `with_controller` is false, the key `controller` is ignored, because the command line has chosen one. `name` is
// the file's name in messages. Throws InvalidArgument if it is not YAML, has no sections, or has invalid values.
ConfigOptions read_config(const std::string& yaml, bool with_controller, const std::string& name);

}  // namespace hvd::launcher
