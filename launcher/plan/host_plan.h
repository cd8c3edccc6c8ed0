// The plan of one host of a job: its programs and ranks, their environment, and the text that --dry-run prints.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/base/process.h"

namespace hvd::launcher {

struct RankNumbers {
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;
  int cross_rank = 0, cross_size = 1;
};

// What is the same for all ranks of a host. The key is passed in the environment only: all users read command lines.
struct HostRendezvous {
  std::string hostname;
  std::string store;  // as Address::to_string() writes it
  std::string job_key_hex;
  std::string address{};  // numeric, where other hosts reach this one; empty: ranks find it out themselves
  int group_rank = 0;     // the host's number among those that have ranks
  std::string master_address{}, master_port{};  // on the host of rank 0, for a server that PyTorch starts there
};

std::vector<std::string> to_entries(const Environment& environment);

// Applies -x with mpirun's meaning: "VAR=value" sets, "VAR" passes the present value. Returns the names that have none.
std::vector<std::string> apply_exports(Environment& environment, const std::vector<std::string>& exports);

// Sets OMP_NUM_THREADS, unless it is set, to an equal share of the host's CPUs for each of several ranks that are not
// bound. Each rank would else start a thread per CPU, and these would spin waiting for one another. (torchrun sets 1.)
void share_openmp_threads(Environment& environment, int local_size, std::size_t cpus);

// The variables of an environment that the job replaces with its own values, as "NAME=value NAME=value"; empty if none.
std::string replaced_torch_variables(const Environment& environment, const Environment& exports);

// The environment of ranks on another host: hvdrun's (`of_hvdrun`), so that a virtual environment and its paths are the
// same on all hosts, except for variables that describe a host, a login or a process; those are the host's (`of_agent`,
// in which its agent was started). -x is applied afterwards.
Environment environment_on_host(const Environment& of_hvdrun, const Environment& of_agent);

struct ProgramPlan {
  std::string file{};                    // empty: the host looks it up
  std::vector<std::string> arguments{};  // argv, beginning with the name as typed
  Environment environment{};             // hvdrun's
  Environment exports{};                 // of -x and -mca; override `environment`
  std::string working_directory{};       // empty: hvdrun's
};

// The program's environment without the variables of the rank's numbers.
Environment with_exports(const ProgramPlan& program);

// A process of the job: a rank or a server. Servers are numbered after the ranks (in an elastic job, far behind all
// processes), and one that is started again gets the next number: numbers.rank is that one, numbers.size that of ranks,
// and what else is in `numbers` does not count.
struct RankPlan {
  RankNumbers numbers;
  int server = -1;             // its number among the servers; -1: it is a rank
  int server_start = 0;        // how often the server was started before
  std::size_t program = 0;     // index in HostPlan::programs
  std::vector<int> cpus{};     // the CPUs that it is bound to; empty: not bound
  std::string visible_gpus{};  // for CUDA_VISIBLE_DEVICES; empty: unchanged
  bool reads_input = false;    // hvdrun's standard input
};

// "rank 3", "server 1".
std::string process_name(const RankPlan& process);

struct HostPlan {
  std::string name{};
  std::vector<ProgramPlan> programs{};
  std::vector<RankPlan> ranks{};    // ascending
  std::vector<RankPlan> servers{};  // ascending
  int servers_of_job = 0;
  HostRendezvous rendezvous{};
  // The ranks are processes of an elastic job, `rank` being the process's number. They get their ranks in init().
  bool is_elastic = false;
  Duration stopped_limit{};         // a process that is stopped for longer is killed; zero: none is
  std::string preemption_script{};  // a shell command whose exit code 0 announces the end of the host; empty: none
  bool merge_errors = false;        // standard error goes where standard output goes
  bool verbose = false;
};

// `base`, with hvd's variables of the rank's numbers, and torchrun's (RANK, MASTER_ADDR, ...) for PyTorch and the
// libraries on top of it. They override existing values; only -x MASTER_ADDR and MASTER_PORT are kept. Other variables
// of torchrun are removed, of servers all: they refer to the store of another job. HVD_TORCH_VARIABLES lists the ones
// that hvdrun has set, so that a rank is not mistaken for one of torchrun, and a job started within a job does not
// report them as the user's values being replaced.
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

// Looks up a name without a slash in the folders of `search_path` (PATH's format). `folder`: where the program is to
// start; empty: this process's working directory; else the result is absolute. Throws ProgramUnusable.
std::string find_program(const std::string& folder, const std::string& name, const std::string& search_path);

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
