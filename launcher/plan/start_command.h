// How agents are started on other hosts: by what, and the commands. Pure.
//
// What an agent must keep to itself comes over its standard input, never with the command, which everybody can read.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "launcher/plan/hosts.h"
#include "launcher/plan/job_environment.h"

namespace hvd::launcher {

// Who starts the processes, or hvdrun's agents on their hosts.
enum class StartedBy { automatic, local, ssh, slurm, mpirun };

// Of --rsh, --ssh-port and --ssh-identity-file.
struct RemoteShell {
  std::string command{};  // of --rsh, a shell's text to which host and command are appended; empty: ssh
  std::optional<int> port{};
  std::string identity_file{};
  bool operator==(const RemoteShell&) const = default;
};

// What --rsh does not say, may Open MPI's parameter plm_rsh_agent, of -mca or else of the environment: of several
// commands between colons, the first.
RemoteShell with_parameters_of_open_mpi(RemoteShell shell, const std::vector<std::pair<std::string, std::string>>& mca,
                                        const Environment& environment);

// By what agents are started: srun, if the hosts are those of Slurm's allocation and no other command is given, else
// ssh or the command. Local, if there are no hosts but this one. Throws InvalidArgument for what contradicts itself.
StartedBy choose_start(StartedBy asked, const RemoteShell& shell, bool only_this_host, bool slurms_hosts);

// One word for a shell; as it is, if a shell finds nothing in it.
std::string shell_quoted(std::string_view word);
std::string shell_quoted(const std::vector<std::string>& words);

// A shell's command that starts an agent on a host. `hvdrun` is the program's path there. The agent's command stands in
// words of its own, so that a stand-in for ssh may run it as well as hand it to a shell.
//
// ssh never asks for anything. Whether it trusts a host that it does not know, says its own configuration: the key of
// the job goes to whoever answers.
std::string start_by_remote_shell(const RemoteShell& shell, const HostSlots& host, const std::string& hvdrun);

// Starts an agent on each of these hosts of Slurm's allocation; all read the same standard input. srun numbers nodes in
// an order of its own: an agent finds itself in the list of hosts by its SLURMD_NODENAME.
std::vector<std::string> start_by_slurm(const std::vector<HostSlots>& hosts, const std::string& hvdrun);

}  // namespace hvd::launcher
