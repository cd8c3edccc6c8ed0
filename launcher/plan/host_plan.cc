#include "launcher/plan/host_plan.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <string_view>
#include <utility>

#include "launcher/plan/host_resources.h"
#include "launcher/plan/slots.h"
#include "launcher/plan/start_command.h"

namespace hvd::launcher {
namespace {

constexpr const char* kOurs = "HVD_TORCH_VARIABLES";  // read by core/bootstrap/launch_environment.cc
constexpr const char* kAgents = "TORCHELASTIC_";

std::vector<std::pair<std::string, std::string>> torch_variables(const RankNumbers& numbers,
                                                                 const HostRendezvous& rendezvous) {
  return {{"RANK", std::to_string(numbers.rank)},
          {"WORLD_SIZE", std::to_string(numbers.size)},
          {"LOCAL_RANK", std::to_string(numbers.local_rank)},
          {"LOCAL_WORLD_SIZE", std::to_string(numbers.local_size)},
          {"GROUP_RANK", std::to_string(rendezvous.group_rank)},
          {"MASTER_ADDR", rendezvous.master_address},
          {"MASTER_PORT", rendezvous.master_port}};
}

bool is_ours(const Environment& environment, const std::string& name, const std::string& value) {
  const auto ours = environment.find(kOurs);
  return ours != environment.end() &&
         (" " + ours->second + " ").find(" " + name + "=" + value + " ") != std::string::npos;
}

// Variables that the host keeps; a name that ends in * is a prefix.
constexpr std::string_view kOfTheHost[] = {
    // The place of a process.
    "HOST", "HOSTNAME", "PWD", "OLDPWD", "TMPDIR", "HVD_HOST_ID", "HVD_HOSTNAME", "HVD_ADDRESS", "HVD_PLACE",
    "HOROVOD_HOSTNAME",
    // The login, and its sockets, keys and files on that machine.
    "HOME", "USER", "LOGNAME", "MAIL", "SHELL", "SSH_*", "XDG_RUNTIME_DIR", "XDG_SESSION_*", "XDG_SEAT*", "XDG_VTNR",
    "DBUS_SESSION_BUS_ADDRESS", "KRB5CCNAME", "DISPLAY", "WAYLAND_DISPLAY", "XAUTHORITY", "TMUX*", "STY", "WINDOWID",
    // A single process: its shell's functions and depth, its systemd unit.
    "_", "SHLVL", "BASH_FUNC_*", "INVOCATION_ID", "JOURNAL_STREAM", "NOTIFY_SOCKET", "LISTEN_*",
    // The place in a Slurm step, or in an MPI job.
    "SLURMD_*", "SLURM_STEP*", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_GTIDS", "SLURM_TASK_PID",
    "SLURM_CPUS_ON_NODE", "SLURM_GPUS_ON_NODE", "SLURM_CPU_BIND*", "SLURM_SRUN_*", "SLURM_LAUNCH_*", "SLURM_TOPOLOGY_*",
    "PMI_*", "PMIX_*", "OMPI_COMM_WORLD_*"};

// The host's values, if it has them, because a batch system has set them there; else hvdrun's.
constexpr std::string_view kOfTheHostFirst[] = {"CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "HIP_VISIBLE_DEVICES",
                                                "NVIDIA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"};

// Whether a variable of hvdrun's environment is transmitted to other hosts.
bool travels(const std::string& name) {
  return std::ranges::none_of(kOfTheHost, [&](std::string_view pattern) {
    return pattern.ends_with('*') ? name.starts_with(pattern.substr(0, pattern.size() - 1)) : name == pattern;
  });
}

bool is_file(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error);
}

bool is_executable(const std::string& path) { return is_file(path) && access(path.c_str(), X_OK) == 0; }

ProgramUnusable not_executable(const std::string& path) {
  const std::string hint = path.ends_with(".py") ? "; start it as: python " + path : "; chmod +x makes it so";
  return ProgramUnusable(126, path + " is not executable" + hint);
}

bool is_path(const std::string& name) { return name.find('/') != std::string::npos; }

// Seen from this process's working directory.
std::string look_up(const std::string& name, const std::string& search_path) {
  if (is_path(name)) {
    if (is_executable(name)) return name;
    std::error_code error;
    if (std::filesystem::is_directory(name, error)) throw ProgramUnusable(126, name + " is a directory");
    if (is_file(name)) throw not_executable(name);
    throw ProgramUnusable(127, "program not found: " + name);
  }
  std::string without_permission;
  std::istringstream folders(search_path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::string path = (folder.empty() ? "." : folder) + "/" + name;
    if (is_executable(path)) return path;
    if (without_permission.empty() && is_file(path)) without_permission = path;
  }
  if (!without_permission.empty()) throw not_executable(without_permission);
  if (is_executable(name))
    throw ProgramUnusable(127, "program not found in PATH: " + name + "; is ./" + name + " meant?");
  if (is_file(name) && name.ends_with(".py")) {
    throw ProgramUnusable(127, "program not found in PATH: " + name + "; is python " + name + " meant?");
  }
  throw ProgramUnusable(127, "program not found in PATH: " + name);
}

using Row = std::vector<std::string>;

std::string table(const std::vector<Row>& rows, const std::string& indent) {
  std::vector<std::size_t> widths(rows.front().size());
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line = indent;
    for (std::size_t i = 0; i < row.size(); ++i) line += row[i] + std::string(widths[i] - row[i].size() + 2, ' ');
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string of(int number, int size) { return std::to_string(number) + "/" + std::to_string(size); }

std::string ranks_text(const HostPlan& host) {
  const bool several_programs = host.programs.size() > 1;
  std::vector<Row> rows{{"rank", "local", "cross", "CPUs", "GPUs"}};
  if (several_programs) rows.front().emplace_back("program");
  for (const RankPlan& rank : host.ranks) {
    const RankNumbers& numbers = rank.numbers;
    rows.push_back({of(numbers.rank, numbers.size), of(numbers.local_rank, numbers.local_size),
                    of(numbers.cross_rank, numbers.cross_size), rank.cpus.empty() ? "all" : format_cpu_list(rank.cpus),
                    rank.visible_gpus.empty() ? "as they are" : rank.visible_gpus});
    if (several_programs) rows.back().push_back(std::to_string(rank.program));
  }
  return table(rows, "  ");
}

std::string servers_text(const HostPlan& host) {
  std::string text;
  for (const RankPlan& server : host.servers) {
    text += "  " + process_name(server) + ", on " +
            (server.cpus.empty() ? "all CPUs" : "the CPUs " + format_cpu_list(server.cpus)) + "\n";
  }
  return text;
}

std::string environment_text(const HostPlan& host, const RankPlan& rank) {
  std::string text = "  environment of " + process_name(rank) + ":\n";
  for (const auto& [name, value] : environment_of_rank(host, rank, {})) {
    text += "    " + name + "=" + (name == "HVD_JOB_KEY" ? "(secret)" : shell_quoted(value)) + "\n";
  }
  return text;
}

}  // namespace

std::string process_name(const RankPlan& process) {
  return process.server < 0 ? "rank " + std::to_string(process.numbers.rank)
                            : "server " + std::to_string(process.server);
}

std::vector<std::string> to_entries(const Environment& environment) {
  std::vector<std::string> result;
  result.reserve(environment.size());
  for (const auto& [name, value] : environment) result.push_back(name + "=" + value);
  return result;
}

std::vector<std::string> apply_exports(Environment& environment, const std::vector<std::string>& exports) {
  std::vector<std::string> not_set;
  for (const std::string& entry : exports) {
    const auto equals = entry.find('=');
    if (equals != std::string::npos) {
      environment[entry.substr(0, equals)] = entry.substr(equals + 1);
    } else if (!environment.contains(entry)) {
      not_set.push_back(entry);
    }
  }
  return not_set;
}

Environment environment_of_rank(const HostPlan& plan, const RankPlan& rank, Environment base) {
  const RankNumbers& numbers = rank.numbers;
  const HostRendezvous& rendezvous = plan.rendezvous;
  const std::pair<const char*, std::string> identity[] = {
      {"RANK", std::to_string(numbers.rank)},
      {"SIZE", std::to_string(numbers.size)},
      {"LOCAL_RANK", std::to_string(numbers.local_rank)},
      {"LOCAL_SIZE", std::to_string(numbers.local_size)},
      {"CROSS_RANK", std::to_string(numbers.cross_rank)},
      {"CROSS_SIZE", std::to_string(numbers.cross_size)},
      {"HOSTNAME", rendezvous.hostname},
  };
  const bool is_server = rank.server >= 0;
  // Ranks of elastic jobs find theirs out in each init().
  const auto has = [&](std::string_view name) {
    return name == "HOSTNAME" || (!plan.is_elastic && (!is_server || name == "SIZE"));
  };
  for (const std::string prefix : {"HVD_", "HOROVOD_"}) {
    for (const auto& [name, value] : identity) {
      if (has(name)) {
        base[prefix + name] = value;
      } else {
        base.erase(prefix + name);
      }
    }
    if (plan.is_elastic) {
      base[prefix + "ELASTIC"] = "1";
    } else {
      base.erase(prefix + "ELASTIC");  // set if an elastic job's process has started this hvdrun
    }
  }
  for (const char* name : {"HVD_PROCESS", "HVD_SERVERS", "HVD_SERVER", "HVD_SERVER_START"}) {
    base.erase(name);  // set if hvdrun was itself started by an hvdrun
  }
  if (plan.is_elastic && !is_server) base["HVD_PROCESS"] = std::to_string(numbers.rank);
  if (plan.servers_of_job > 0) base["HVD_SERVERS"] = std::to_string(plan.servers_of_job);
  if (is_server) base["HVD_SERVER"] = std::to_string(rank.server);
  if (is_server) base["HVD_SERVER_START"] = std::to_string(rank.server_start);
  base["HVD_STORE"] = rendezvous.store;
  if (!rendezvous.address.empty()) base["HVD_ADDRESS"] = rendezvous.address;
  base["HVD_JOB_KEY"] = rendezvous.job_key_hex;
  std::erase_if(base, [](const auto& variable) { return variable.first.starts_with(kAgents); });
  std::string ours;
  for (const auto& [name, value] : torch_variables(numbers, rendezvous)) {
    base.erase(name);
    if (plan.is_elastic || is_server) continue;  // set by each init()
    base[name] = value;
    ours += (ours.empty() ? "" : " ") + name + "=" + value;
  }
  base.erase(kOurs);
  if (!ours.empty()) base[kOurs] = ours;
  const Environment& exports = plan.programs[rank.program].exports;
  for (const char* name : {"MASTER_ADDR", "MASTER_PORT"}) {
    if (const auto chosen = exports.find(name); chosen != exports.end()) base[name] = chosen->second;
  }
  return base;
}

void share_openmp_threads(Environment& environment, int local_size, std::size_t cpus) {
  if (local_size < 2) return;
  const std::size_t share = cpus / static_cast<std::size_t>(local_size);
  environment.emplace("OMP_NUM_THREADS", std::to_string(std::max<std::size_t>(share, 1)));
}

std::string replaced_torch_variables(const Environment& environment, const Environment& exports) {
  std::string text;
  for (const auto& [name, unused] : torch_variables({}, {})) {
    const auto found = environment.find(name);
    if (found == environment.end() || is_ours(environment, name, found->second)) continue;
    if (name.starts_with("MASTER_") && exports.contains(name)) continue;
    text += (text.empty() ? "" : " ") + name + "=" + found->second;
  }
  return text;
}

Environment environment_on_host(const Environment& of_hvdrun, const Environment& of_agent) {
  Environment result = of_agent;
  for (const auto& [name, value] : of_hvdrun) {
    const bool only_if_missing = std::ranges::find(kOfTheHostFirst, name) != std::end(kOfTheHostFirst);
    if (!travels(name) || (only_if_missing && of_agent.contains(name))) continue;
    result[name] = value;
  }
  return result;
}

Environment with_exports(const ProgramPlan& program) {
  Environment environment = program.environment;
  for (const auto& [name, value] : program.exports) environment[name] = value;
  return environment;
}

std::string search_path_of(const Environment& environment) {
  if (const auto path = environment.find("PATH"); path != environment.end()) return path->second;
  std::string path(confstr(_CS_PATH, nullptr, 0), '\0');
  confstr(_CS_PATH, path.data(), path.size());
  return path.c_str();  // drops the terminating zero
}

std::string find_program(const std::string& folder, const std::string& name, const std::string& search_path) {
  if (folder.empty()) return look_up(name, search_path);
  const std::string from_here = is_path(name) ? (std::filesystem::path(folder) / name).string() : name;
  return std::filesystem::absolute(look_up(from_here, search_path)).string();
}

std::string plan_text(const std::string& hosts_from, const std::vector<PlannedHost>& hosts) {
  std::size_t ranks = 0;
  for (const PlannedHost& host : hosts) ranks += host.plan.ranks.size();
  const int servers = hosts.front().plan.servers_of_job;
  std::string text = several(ranks, "rank") + (servers > 0 ? " and " + several(servers, "server") : "") + " on " +
                     several(hosts.size(), "host") + (hosts_from.empty() ? "" : ", from " + hosts_from) + "\n";
  const std::vector<ProgramPlan>& programs = hosts.front().plan.programs;
  for (std::size_t i = 0; i < programs.size(); ++i) {
    text += "program" + (programs.size() > 1 ? " " + std::to_string(i) : "") + ": " +
            shell_quoted(programs[i].arguments) + "\n";
  }
  for (const auto& [host, slots, start_command] : hosts) {
    text += "\n" + host.name + ": " + several(host.ranks.size(), "rank") + ", " + several(slots, "slot") + "\n";
    text += "  started by: " + (start_command.empty() ? "hvdrun itself, on this machine" : start_command) + "\n";
    text += ranks_text(host) + servers_text(host);
    for (const RankPlan& rank : host.ranks) text += environment_text(host, rank);
    for (const RankPlan& server : host.servers) text += environment_text(host, server);
  }
  return text;
}

}  // namespace hvd::launcher
