#include "core/bootstrap/launch_environment.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

#include "core/base/process.h"

namespace hvd {

namespace {

namespace fs = std::filesystem;

int parent_of(int pid) {
  const auto entry = read_process_stat(pid);
  return entry ? entry->parent : 0;
}

fs::path folder_of(int pid) { return "/proc/" + std::to_string(pid); }

// The environment with which the process's program was started. Empty if this process may not see it.
Environment environment_of(int pid) {
  std::ifstream file(folder_of(pid) / "environ", std::ios::binary);
  Environment environment;
  for (std::string entry; std::getline(file, entry, '\0');) {
    const auto equals = entry.find('=');
    if (equals != std::string::npos) environment.emplace(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return environment;
}

bool is_in_a_job(int pid) {
  std::error_code gone;
  for (const auto& thread : fs::directory_iterator(folder_of(pid) / "task", gone)) {
    std::ifstream file(thread.path() / "comm");
    std::string name;
    if (std::getline(file, name) && name == kEngineThread) return true;
  }
  return false;
}

// A launcher started by a rank passes its ranks another socket, possibly under the same number.
bool has_another_socket(int pid, const Environment& own) {
  const auto number = own.find("PMI_FD");
  if (number == own.end()) return false;
  std::error_code none;
  const fs::path ours = fs::read_symlink(folder_of(getpid()) / "fd" / number->second, none);
  const fs::path theirs = fs::read_symlink(folder_of(pid) / "fd" / number->second, none);
  return ours.string().starts_with("socket:") && !theirs.empty() && ours != theirs;
}

// The variables that identify the rank and distinguish the launcher's jobs.
std::vector<const char*> variables_of(Launcher launcher) {
  switch (launcher) {
    case Launcher::hvdrun: return {"HVD_RANK", "HOROVOD_RANK", "HVD_STORE"};
    case Launcher::open_mpi: return {"OMPI_COMM_WORLD_RANK", "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"};
    case Launcher::mpich: return {"PMI_RANK", "PMI_SIZE", "PMI_FD"};
    case Launcher::slurm: return {"SLURM_PROCID", "SLURM_JOB_ID", "SLURM_STEP_ID"};
    case Launcher::tf_config: return {"TF_CONFIG"};
    case Launcher::torchrun:
      return {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"};
    case Launcher::none: break;
  }
  return {};
}

}  // namespace

bool is_started_by(int pid) {
  if (pid <= 0) return false;
  for (int ancestor = getppid(); ancestor > 0; ancestor = parent_of(ancestor)) {
    if (ancestor == pid) return true;
  }
  return false;
}

bool is_same_rank(Launcher launcher, const Environment& one, const Environment& other) {
  bool any = false;
  for (const char* name : variables_of(launcher)) {
    const auto here = one.find(name), there = other.find(name);
    const bool is_here = here != one.end(), is_there = there != other.end();
    if (is_here != is_there || (is_here && here->second != there->second)) return false;
    any |= is_here;
  }
  return any;
}

std::optional<int> rank_that_started_this(Launcher launcher, const Environment& own) {
  for (int ancestor = getppid(); ancestor > 0; ancestor = parent_of(ancestor)) {
    if (!is_same_rank(launcher, own, environment_of(ancestor)) || !is_in_a_job(ancestor)) continue;
    if (launcher != Launcher::mpich || !has_another_socket(ancestor, own)) return ancestor;
  }
  return std::nullopt;
}

}  // namespace hvd
