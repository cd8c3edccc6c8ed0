// Builds the environment of each rank: hvdrun's own environment, as far as it holds on the rank's host, then -x, then
// the rank's place in the job. Pure.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

namespace hvd::launcher {

// Builds the environment of each rank: hvdrun's own environment, then -x, then the rank's place in the job. Pure.
using Environment = std::map<std::string, std::string>;

struct RankPlace {
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;
  int cross_rank = 0, cross_size = 1;
};

// The rendezvous variables that are the same for all ranks of a host. The key is passed in the environment only: all
// users can read a command line.
struct HostRendezvous {
  std::string hostname;
  std::string store;  // as Address::to_string() writes it
  std::string job_key_hex;
  std::string address{};  // numeric, where other hosts reach this one; empty: ranks find it out themselves
  int group_rank = 0;     // the host's number among those that have ranks
  std::string master_address{}, master_port{};  // on the host of rank 0, for a server that PyTorch starts there
};

// Parses "NAME=value" entries, as in `environ`.
Environment parse_environment(const char* const* entries);
std::vector<std::string> to_entries(const Environment& environment);

// Applies -x with mpirun's meaning: "VAR=value" sets, "VAR" passes the present value. Returns the names that have none.
std::vector<std::string> apply_exports(Environment& environment, const std::vector<std::string>& exports);

// The variables of the place override those of the same names in `base`.
Environment environment_of_rank(Environment base, const RankPlace& place, const HostRendezvous& rendezvous);

// Sets the environment variables with which torchrun describes a process's place in the job (RANK, MASTER_ADDR, ...),
// for PyTorch and the libraries on top of it. They are set for every rank and override existing values. Pure.
//
// HVD_TORCH_VARIABLES lists the ones that hvdrun has set, so that a rank is not mistaken for one of torchrun, and a job
// started within a job does not report them as the user's values being replaced.
// Also removes torchrun's other variables, which refer to the store of another job.
void set_torch_variables(Environment& environment, const RankPlace& place, const HostRendezvous& rendezvous);

// Keeps the user's choice, -x MASTER_ADDR and -x MASTER_PORT.
void keep_chosen_master(Environment& environment, const Environment& exports);

// Sets OMP_NUM_THREADS, unless it is set, to an equal share of the host's CPUs for each of several ranks that are not
// bound. Each rank would else start a thread per CPU, and these would spin waiting for one another. (torchrun sets 1.)
void share_openmp_threads(Environment& environment, int local_size, std::size_t cpus);

// The variables of an environment that the job replaces with its own values, as "NAME=value NAME=value"; empty if none.
std::string replaced_torch_variables(const Environment& environment, const Environment& exports);

// The environment of ranks on another host: hvdrun's, so that a virtual environment and its paths are the same on all
// hosts, except for variables that describe a host, a login or a process; those are the host's. Pure.
// Whether a variable of hvdrun's environment is transmitted to other hosts.
bool travels(const std::string& name);

// `drivers` is hvdrun's environment, `agents` the one in which the host's agent was started. -x is applied afterwards.
Environment environment_on_host(const Environment& drivers, const Environment& agents);

}  // namespace hvd::launcher
