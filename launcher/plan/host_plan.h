// The plan of one host of a job: the programs and the ranks that it starts, their environments, the look-up of the
// programs, and the text that --dry-run prints.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

#include "launcher/plan/job_environment.h"

namespace hvd::launcher {

struct ProgramPlan {
  std::string file{};                    // empty: the host looks it up
  std::vector<std::string> arguments{};  // argv, beginning with the name as typed
  Environment environment{};             // hvdrun's
  Environment exports{};                 // of -x and -mca; override `environment`
  std::string working_directory{};       // empty: hvdrun's
};

// The program's environment without the variables of the rank's place.
Environment with_exports(const ProgramPlan& program);

struct RankPlan {
  RankPlace place;
  std::size_t program = 0;     // index in HostPlan::programs
  std::vector<int> cpus{};     // the CPUs that it is bound to; empty: not bound
  std::string visible_gpus{};  // for CUDA_VISIBLE_DEVICES; empty: unchanged
  bool reads_input = false;    // hvdrun's standard input
};

struct HostPlan {
  std::string name{};
  std::vector<ProgramPlan> programs{};
  std::vector<RankPlan> ranks{};  // ascending
  HostRendezvous rendezvous{};
  bool merge_errors = false;  // standard error goes where standard output goes
  bool verbose = false;
};

// `base`, with the variables of the rank's place for hvd and for PyTorch.
Environment environment_of_rank(const HostPlan& plan, const RankPlan& rank, Environment base);

// Thrown by the look-up of a program, which precedes the start of any rank: a mistyped name is one error and not N.
// The exit code is that of a shell: 127 for not found, 126 for not executable.
class ProgramUnusable : public std::runtime_error {
 public:
  ProgramUnusable(int exit_code, const std::string& message) : std::runtime_error(message), exit_code_(exit_code) {}
  int exit_code() const { return exit_code_; }

 private:
  int exit_code_;
};

// PATH; if it is not set, the default path of shells and execvp().
std::string search_path_of(const Environment& environment);

// Returns a name with a slash unchanged; looks up any other in the folders of `search_path` (PATH's format). Throws
// ProgramUnusable.
std::string find_program(const std::string& name, const std::string& search_path);

// The same for a program that is to start in `folder` (empty: this process's working directory); if a folder is given,
// the result is absolute.
std::string find_program_from(const std::string& folder, const std::string& name, const std::string& search_path);

// A host in the text of a plan.
struct PlannedHost {
  HostPlan plan{};
  int slots = 1;
  std::string start_command{};  // empty: this machine
};

// The plan that --dry-run prints: what would be started, where and how. Leaves out the job key. `hosts_from`: "-H",
// "Slurm's allocation (SLURM_JOB_NODELIST)"; empty: not named. All hosts have the same programs. Pure.
std::string plan_text(const std::string& hosts_from, const std::vector<PlannedHost>& hosts);

}  // namespace hvd::launcher
