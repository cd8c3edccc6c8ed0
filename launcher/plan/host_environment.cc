#include "launcher/plan/host_environment.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace hvd::launcher {
namespace {

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
