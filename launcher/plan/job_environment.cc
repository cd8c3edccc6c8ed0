#include "launcher/plan/job_environment.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

namespace hvd::launcher {
namespace {

constexpr const char* kOurs = "HVD_TORCH_VARIABLES";  // read by core/bootstrap/launch_environment.cc
constexpr const char* kAgents = "TORCHELASTIC_";
constexpr const char* kMaster[] = {"MASTER_ADDR", "MASTER_PORT"};

std::vector<std::pair<std::string, std::string>> torch_variables(const RankPlace& place,
                                                                 const HostRendezvous& rendezvous) {
  return {{"RANK", std::to_string(place.rank)},
          {"WORLD_SIZE", std::to_string(place.size)},
          {"LOCAL_RANK", std::to_string(place.local_rank)},
          {"LOCAL_WORLD_SIZE", std::to_string(place.local_size)},
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
    "HOST", "HOSTNAME", "PWD", "OLDPWD", "TMPDIR", "HVD_HOST_ID", "HVD_HOSTNAME", "HVD_ADDRESS", "HOROVOD_HOSTNAME",
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

bool matches(std::string_view name, std::string_view pattern) {
  return pattern.ends_with('*') ? name.starts_with(pattern.substr(0, pattern.size() - 1)) : name == pattern;
}

}  // namespace

Environment parse_environment(const char* const* entries) {
  Environment result;
  for (; entries != nullptr && *entries != nullptr; ++entries) {
    const std::string entry = *entries;
    const auto equals = entry.find('=');
    if (equals != std::string::npos) result.emplace(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return result;
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

Environment environment_of_rank(Environment base, const RankPlace& place, const HostRendezvous& rendezvous) {
  const std::pair<const char*, std::string> identity[] = {
      {"RANK", std::to_string(place.rank)},
      {"SIZE", std::to_string(place.size)},
      {"LOCAL_RANK", std::to_string(place.local_rank)},
      {"LOCAL_SIZE", std::to_string(place.local_size)},
      {"CROSS_RANK", std::to_string(place.cross_rank)},
      {"CROSS_SIZE", std::to_string(place.cross_size)},
      {"HOSTNAME", rendezvous.hostname},
  };
  for (const auto& [name, value] : identity) {
    base["HVD_" + std::string(name)] = value;
    base["HOROVOD_" + std::string(name)] = value;
  }
  base["HVD_STORE"] = rendezvous.store;
  if (!rendezvous.address.empty()) base["HVD_ADDRESS"] = rendezvous.address;
  base["HVD_JOB_KEY"] = rendezvous.job_key_hex;
  return base;
}

void set_torch_variables(Environment& environment, const RankPlace& place, const HostRendezvous& rendezvous) {
  std::erase_if(environment, [](const auto& variable) { return variable.first.starts_with(kAgents); });
  std::string ours;
  for (const auto& [name, value] : torch_variables(place, rendezvous)) {
    environment[name] = value;
    ours += (ours.empty() ? "" : " ") + name + "=" + value;
  }
  environment[kOurs] = ours;
}

void keep_chosen_master(Environment& environment, const Environment& exports) {
  for (const char* name : kMaster) {
    if (const auto chosen = exports.find(name); chosen != exports.end()) environment[name] = chosen->second;
  }
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

bool travels(const std::string& name) {
  return std::ranges::none_of(kOfTheHost, [&](std::string_view pattern) { return matches(name, pattern); });
}

Environment environment_on_host(const Environment& drivers, const Environment& agents) {
  Environment result = agents;
  for (const auto& [name, value] : drivers) {
    const bool only_if_missing = std::ranges::find(kOfTheHostFirst, name) != std::end(kOfTheHostFirst);
    if (!travels(name) || (only_if_missing && agents.contains(name))) continue;
    result[name] = value;
  }
  return result;
}

}  // namespace hvd::launcher
