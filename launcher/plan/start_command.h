// Chooses how agents are started on other hosts, and builds the commands. Pure.
// Secrets are sent over the agent's standard input, never in the command, which all users can read.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "launcher/plan/host_plan.h"
#include "launcher/plan/hosts.h"

namespace hvd::launcher {

// What starts the processes, or hvdrun's agents on their hosts.
enum class StartedBy { automatic, local, ssh, slurm, mpirun };

// The values of --rsh, --ssh-port and --ssh-identity-file.
struct RemoteShell {
  std::string command{};  // of --rsh: shell text to which host and command are appended; empty: ssh
  std::optional<int> port{};
  std::string identity_file{};
  std::vector<std::string> arguments{};  // more for ssh, or for the command: of Open MPI's plm_rsh_args
  bool operator==(const RemoteShell&) const = default;
};

inline constexpr const char* kNetworkInterfaceOption = "--network-interface";

// What all agents of a job are told.
struct AgentOptions {
  std::vector<std::string> interfaces;  // the networks that may be used; empty: all
  Duration lease{};                     // how long the other end of a link may be silent
  Duration grace{};                     // as in JobOptions
  Duration start_timeout{};
};

// Without --rsh, takes the first command of Open MPI's plm_rsh_agent (A:B), and the words of its plm_rsh_args, which it
// appends; each is given by -mca or else in the environment. Open MPI 5 calls them plm_ssh_agent and plm_ssh_args.
RemoteShell with_parameters_of_open_mpi(RemoteShell shell, const std::vector<std::pair<std::string, std::string>>& mca,
                                        const Environment& environment);

// Returns what starts the agents: srun if the hosts are those of Slurm's allocation and no other command is given, else
// ssh or the command; `local` if this is the only host. Throws InvalidArgument for contradictory options.
StartedBy choose_start(StartedBy asked, const RemoteShell& shell, bool only_this_host, bool slurms_hosts);

// Quotes a word for a shell; leaves it unchanged if it has no special characters.
std::string shell_quoted(std::string_view word);
std::string shell_quoted(const std::vector<std::string>& words);

// The shell command that starts an agent on a host. `hvdrun` is the program's path there. The words of the agent's
// command are separate arguments, so that a replacement for ssh may execute them or pass them to a shell.
//
// ssh never prompts. Its configuration decides whether it trusts an unknown host, to which the job key is sent.
std::string start_by_remote_shell(const RemoteShell& shell, const HostSlots& host, const std::string& hvdrun);

// Where listening agents are reached ("ADDRESS:PORT"), by host: lines "HOST ADDRESS:PORT"; # begins a comment. Throws
// InvalidArgument, with the line's number; `name` is the file's name in messages.
std::map<std::string, std::string> parse_agent_addresses(std::string_view text, const std::string& name);

// The shell command that has the agent that listens at `address` start one. It must say so before `timeout` is over.
std::string start_by_listening_agent(const std::string& address, Duration timeout, const std::string& hvdrun);

// The srun command that starts an agent on each of these hosts of Slurm's allocation; all read the same standard input.
// srun chooses its own order of nodes: an agent finds its entry in the list of hosts by SLURMD_NODENAME.
std::vector<std::string> start_by_slurm(const std::vector<HostSlots>& hosts, const std::string& hvdrun);

}  // namespace hvd::launcher
