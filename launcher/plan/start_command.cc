#include "launcher/plan/start_command.h"

#include <algorithm>
#include <cctype>
#include <sstream>

#include "core/base/error.h"
#include "core/base/text.h"

namespace hvd::launcher {
namespace {

constexpr const char* kAgent = "agent";
constexpr std::string_view kPlainCharacters = "@%+=:,./-_";

std::string trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return "";
  return std::string(text.substr(first, text.find_last_not_of(" \t") - first + 1));
}

}  // namespace

RemoteShell with_parameters_of_open_mpi(RemoteShell shell, const std::vector<std::pair<std::string, std::string>>& mca,
                                        const Environment& environment) {
  if (!shell.command.empty()) return shell;
  const auto parameter = [&](const std::string& name) {
    std::string value;
    if (const auto it = environment.find("OMPI_MCA_plm_rsh_" + name); it != environment.end()) value = it->second;
    for (const auto& [given, text] : mca) {
      if (given == "plm_rsh_" + name || given == "plm_ssh_" + name) value = text;
    }
    return value;
  };
  const std::string agents = parameter("agent");
  shell.command = trimmed(std::string_view(agents).substr(0, agents.find(':')));
  if (shell.command == "ssh") shell.command.clear();
  shell.arguments = hvd::split_list(parameter("args"), ' ');
  return shell;
}

StartedBy choose_start(StartedBy asked, const RemoteShell& shell, bool only_this_host, bool slurms_hosts) {
  const bool has_command = !shell.command.empty();
  switch (asked) {
    case StartedBy::mpirun: return asked;
    case StartedBy::local:
      if (!only_this_host) throw InvalidArgument("--launcher local: there are other hosts than this one; leave it out");
      return asked;
    case StartedBy::slurm:
      if (has_command) throw InvalidArgument("--launcher slurm and --rsh: agents are started by one of them");
      return asked;
    case StartedBy::ssh: return asked;
    case StartedBy::automatic: break;
  }
  if (only_this_host) return StartedBy::local;
  return slurms_hosts && !has_command ? StartedBy::slurm : StartedBy::ssh;
}

std::string shell_quoted(std::string_view word) {
  const auto is_plain = [](unsigned char c) {
    return std::isalnum(c) != 0 || kPlainCharacters.find(static_cast<char>(c)) != std::string_view::npos;
  };
  if (!word.empty() && std::ranges::all_of(word, is_plain)) return std::string(word);
  std::string result = "'";
  for (const char c : word) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

std::string shell_quoted(const std::vector<std::string>& words) {
  std::string result;
  for (const std::string& word : words) result += (result.empty() ? "" : " ") + shell_quoted(word);
  return result;
}

std::string start_by_remote_shell(const RemoteShell& shell, const HostSlots& host, const std::string& hvdrun) {
  std::vector<std::string> words;
  if (shell.command.empty()) {
    words = {"ssh", "-x", "-o", "BatchMode=yes"};
    if (shell.port) words.insert(words.end(), {"-p", std::to_string(*shell.port)});
    if (!shell.identity_file.empty()) words.insert(words.end(), {"-i", shell.identity_file});
  }
  words.insert(words.end(), shell.arguments.begin(), shell.arguments.end());
  if (!host.user.empty()) words.insert(words.end(), {"-l", host.user});
  // The program's path is quoted twice: for the local shell and for the host's.
  words.insert(words.end(), {host.host, shell_quoted(hvdrun), kAgent});
  return (shell.command.empty() ? "" : shell.command + " ") + shell_quoted(words);
}

std::map<std::string, std::string> parse_agent_addresses(std::string_view text, const std::string& name) {
  std::map<std::string, std::string> addresses;
  std::istringstream lines{std::string(text)};
  int number = 0;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::istringstream words(line.substr(0, line.find('#')));
    std::string host, address, more;
    if (!(words >> host)) continue;
    const bool is_whole = (words >> address) && !(words >> more);
    const auto colon = std::min(address.rfind(':'), address.size());
    const auto port =
        parse_number<std::uint16_t>(std::string_view(address).substr(std::min(colon + 1, address.size())));
    if (!is_whole || colon == 0 || port.value_or(0) == 0) {
      throw InvalidArgument(name + ", line " + std::to_string(number) + ": '" + line + "' is not HOST ADDRESS:PORT");
    }
    addresses[host] = address;
  }
  return addresses;
}

std::string start_by_listening_agent(const std::string& address, Duration timeout, const std::string& hvdrun) {
  // It reports what it has tried before its own caller gives up.
  const Duration limit = timeout - std::min<Duration>(timeout / 10, std::chrono::seconds(1));
  std::ostringstream number;
  number << seconds(limit);
  return "exec " + shell_quoted({hvdrun, kAgent, "--call", address, number.str()});
}

std::vector<std::string> start_by_slurm(const std::vector<HostSlots>& hosts, const std::string& hvdrun) {
  const std::string number = std::to_string(hosts.size());
  std::string names;
  for (const HostSlots& host : hosts) names += (names.empty() ? "" : ",") + host.host;
  // Runs beside other steps (--overlap), with all CPUs, because agents bind their ranks themselves. hvdrun handles the
  // end of agents: without --kill-on-bad-exit=0 and --no-kill, one agent's end may end others before they report why.
  return {"srun",
          "--nodes=" + number,
          "--ntasks=" + number,
          "--ntasks-per-node=1",
          "--nodelist=" + names,
          "--overlap",
          "--cpu-bind=none",
          "--mpi=none",
          "--kill-on-bad-exit=0",
          "--no-kill",
          hvdrun,
          kAgent};
}

}  // namespace hvd::launcher
