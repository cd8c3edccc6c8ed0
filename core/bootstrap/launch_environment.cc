#include "core/bootstrap/launch_environment.h"

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <sstream>
#include <system_error>
#include <vector>

#include "core/base/error.h"
#include "core/base/process.h"
#include "core/base/text.h"

namespace hvd {

namespace {

constexpr int kMaxLaunchedRanks = 1'000'000;

const std::string* find(const Environment& environment, const char* name) {
  const auto found = environment.find(name);
  return found == environment.end() ? nullptr : &found->second;
}

bool has(const Environment& environment, const char* name) { return find(environment, name) != nullptr; }

bool has_all(const Environment& environment, std::initializer_list<const char*> names) {
  return std::ranges::all_of(names, [&](const char* name) { return has(environment, name); });
}

int number(const Environment& environment, const char* name, int lowest) {
  const std::string& text = environment.at(name);
  const auto value = parse_number<int>(text);
  if (value && *value >= lowest && *value <= kMaxLaunchedRanks) return *value;
  throw InvalidArgument(std::string(name) + "='" + text +
                        "', which a launcher should have set: expected a number from " + std::to_string(lowest) +
                        " to " + std::to_string(kMaxLaunchedRanks));
}

Launch launch_of(const Environment& environment, Launcher launcher, const char* rank, const char* size,
                 const char* local_size) {
  Launch launch{.launcher = launcher, .rank = number(environment, rank, 0), .size = number(environment, size, 1)};
  if (launch.rank >= launch.size) {
    throw InvalidArgument(std::string(rank) + "=" + std::to_string(launch.rank) + " is not below " + size + "=" +
                          std::to_string(launch.size) + ", as " + launcher_name(launcher) + " should have set them");
  }
  if (has(environment, local_size)) launch.local_size = number(environment, local_size, 1);
  if (launcher == Launcher::open_mpi) launch.mpi = MpiKind::open_mpi;
  if (launcher == Launcher::mpich) launch.mpi = MpiKind::mpich;
  return launch;
}

// Ports below the default ephemeral range, on which few services listen.
constexpr int kFirstPort = 20'000, kPorts = 12'000;

std::uint16_t port_of_step(const Environment& environment) {
  std::uint64_t hash = 14'695'981'039'346'656'037U;  // FNV-1a
  for (const char* name : {"SLURM_JOB_ID", "SLURM_STEP_ID"}) {
    const std::string* text = find(environment, name);
    for (const char c : text == nullptr ? std::string() : *text + ".") {
      hash = (hash ^ static_cast<unsigned char>(c)) * 1'099'511'628'211U;
    }
  }
  return static_cast<std::uint16_t>(kFirstPort + hash % kPorts);
}

Launch slurm_launch(const Environment& environment) {
  Launch launch = launch_of(environment, Launcher::slurm, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "");
  // As built by Debian and most sites: Open MPI uses PMIx, MPICH uses PMI2, and each fails with the other.
  if (has(environment, "PMIX_RANK")) {
    launch.mpi = MpiKind::open_mpi;
  } else if (has(environment, "PMI_FD")) {
    launch.mpi = MpiKind::mpich;
  }
  if (const std::string* nodes = find(environment, "SLURM_STEP_NODELIST"))
    launch.store.host = expand_nodelist(*nodes).front();
  launch.store.port = port_of_step(environment);
  return launch;
}

// Removes those of torchrun's variables that hvdrun or init() has set for PyTorch (HVD_TORCH_VARIABLES lists them as
// "NAME=value NAME=value"). torchrun, started by a rank, replaces them all, some perhaps with the same value.
Environment without_our_own(Environment environment) {
  const std::string* ours = find(environment, "HVD_TORCH_VARIABLES");
  if (ours == nullptr || has(environment, "TORCHELASTIC_RUN_ID")) return environment;
  std::istringstream entries(*ours);
  for (std::string entry; entries >> entry;) {
    const auto equals = std::min(entry.find('='), entry.size());
    const std::string* value = find(environment, entry.substr(0, equals).c_str());
    if (value != nullptr && entry.substr(0, equals) + "=" + *value == entry) environment.erase(entry.substr(0, equals));
  }
  return environment;
}

bool is_torchrun(const Environment& environment, bool by_its_agent) {
  return has_all(environment, {"RANK", "WORLD_SIZE"}) &&
         (by_its_agent ? has(environment, "TORCHELASTIC_RUN_ID")
                       : has_all(environment, {"MASTER_ADDR", "MASTER_PORT"}));
}

Launch torchrun_launch(const Environment& environment) {
  return launch_of(environment, Launcher::torchrun, "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE");
}

// If several libraries in one process take it for a rank of different jobs, they train different models. HVD_SIZE=1
// without a rank is what a user sets to let each process work alone.
void refuse_other_world_size(const Environment& environment, const std::string& prefix, int size) {
  if (!has(environment, "WORLD_SIZE") || !has(environment, (prefix + "_RANK").c_str())) return;
  const int world_size = number(environment, "WORLD_SIZE", 1);
  if (world_size == size) return;
  throw InvalidArgument("this process is one of " + std::to_string(size) + " by " + prefix +
                        "_SIZE=" + std::to_string(size) + ", and one of " + std::to_string(world_size) +
                        " by WORLD_SIZE=" + std::to_string(world_size) +
                        ": start it with one launcher, and without variables that are left from another");
}

// A process with neither number works alone: a user has taken them from a child.
void read_servers(const Environment& environment, bool is_rank, Launch& launch) {
  if (has(environment, "HVD_SERVER")) launch.server = number(environment, "HVD_SERVER", -1);
  if (launch.server >= 0) launch.rank = -1;
  if (has(environment, "HVD_SERVERS") && (is_rank || launch.server >= 0)) {
    launch.servers = number(environment, "HVD_SERVERS", 0);
  }
}

// hvdrun's own jobs have a store already.
void read_rendezvous(const Environment& environment, Launch& launch) {
  const std::string* place = find(environment, "HVD_RENDEZVOUS");
  if (place == nullptr || place->empty() || has(environment, "HVD_STORE")) return;
  if (launch.size == 1 && launch.servers == 0) return;
  launch.launcher = Launcher::rendezvous;
  try {
    launch.store = Address::parse("tcp:" + *place);
  } catch (const InvalidArgument&) {
    throw InvalidArgument("HVD_RENDEZVOUS='" + *place + "' is not HOST:PORT, where rank 0 is to be reached");
  }
}

// A launcher that has started a single process may have started another launcher, so the search goes on.
Launch any_launch(const Environment& environment) {
  // HOROVOD_SIZE is that of the last epoch, which Python's init() sets.
  const bool has_size = has(environment, "HVD_SIZE");
  if (!has_size && (has(environment, "HVD_PROCESS") || has(environment, "HVD_SERVER"))) {
    Launch launch{.launcher = Launcher::hvdrun};
    if (has(environment, "HVD_PROCESS")) launch.process = number(environment, "HVD_PROCESS", 0);
    read_servers(environment, launch.process.has_value(), launch);
    return launch;
  }
  for (const std::string prefix : {"HVD", "HOROVOD"}) {
    if (!has(environment, (prefix + "_SIZE").c_str())) continue;
    Launch launch{.launcher = Launcher::hvdrun};
    const bool is_rank = has(environment, (prefix + "_RANK").c_str());
    if (is_rank) launch.rank = number(environment, (prefix + "_RANK").c_str(), 0);
    launch.size = number(environment, (prefix + "_SIZE").c_str(), 1);
    refuse_other_world_size(environment, prefix, launch.size);
    read_servers(environment, is_rank, launch);
    if (is_rank || launch.server >= 0) read_rendezvous(environment, launch);
    return launch;
  }
  Launch found;
  if (is_torchrun(environment, true)) found = torchrun_launch(environment);
  if (found.size > 1) return found;
  if (has_all(environment, {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"})) {
    found = launch_of(environment, Launcher::open_mpi, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                      "OMPI_COMM_WORLD_LOCAL_SIZE");
  }
  if (found.size > 1) return found;
  if (is_torchrun(environment, false)) found = torchrun_launch(environment);
  if (found.size > 1) return found;
  const bool step = has_all(environment, {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_ID"});
  if (has_all(environment, {"PMI_RANK", "PMI_SIZE"}) && (!step || has(environment, "MPI_LOCALNRANKS"))) {
    found = launch_of(environment, Launcher::mpich, "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS");
  }
  if (found.size > 1) return found;
  const std::string* cluster = find(environment, "TF_CONFIG");
  if (cluster != nullptr && !cluster->empty()) found = read_tf_config(*cluster);
  return found.launcher != Launcher::tf_config && step ? slurm_launch(environment) : found;
}

// Each of several processes would assume that it is alone, train alone and overwrite the others' files.
void refuse_unknown_launcher(const Environment& environment) {
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", "WORLD_SIZE"}) {
    const std::string* size = find(environment, name);
    if (size == nullptr || *size == "1") continue;
    throw InvalidArgument("this is one of several processes (" + std::string(name) + "=" + *size +
                          "), but not all variables are there by which a launcher says which one: start them with "
                          "hvdrun, mpirun, srun or torchrun, or set HVD_SIZE=1 to let each work alone");
  }
}

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
    case Launcher::hvdrun: return {"HVD_RANK", "HOROVOD_RANK", "HVD_PROCESS", "HVD_SERVER", "HVD_STORE"};
    case Launcher::open_mpi: return {"OMPI_COMM_WORLD_RANK", "PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"};
    case Launcher::mpich: return {"PMI_RANK", "PMI_SIZE", "PMI_FD"};
    case Launcher::slurm: return {"SLURM_PROCID", "SLURM_JOB_ID", "SLURM_STEP_ID"};
    case Launcher::tf_config: return {"TF_CONFIG"};
    case Launcher::rendezvous: return {"HVD_RANK", "HVD_SERVER", "HVD_RENDEZVOUS"};
    case Launcher::torchrun:
      return {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"};
    case Launcher::none: break;
  }
  return {};
}

}  // namespace

Launch read_launch(const Environment& given) {
  const Environment environment = without_our_own(given);
  Launch launch = any_launch(environment);
  const bool alone_on_purpose = launch.launcher == Launcher::hvdrun || launch.launcher == Launcher::tf_config;
  if (alone_on_purpose || launch.size > 1) return launch;
  refuse_unknown_launcher(environment);
  return {};
}

Address store_address(const Launch& launch, int epoch) {
  Address address = launch.store;
  if (epoch > 1) address.port = static_cast<std::uint16_t>(kFirstPort + (address.port + epoch) % kPorts);
  return address;
}

std::vector<std::string_view> split_outside_brackets(std::string_view text) {
  std::vector<std::string_view> parts;
  std::size_t first = 0;
  int depth = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    const char c = i < text.size() ? text[i] : ',';
    if (c == '[') ++depth;
    if (c == ']') --depth;
    if (c != ',' || (depth > 0 && i < text.size())) continue;
    parts.push_back(text.substr(first, i - first));
    first = i + 1;
  }
  return parts;
}

namespace {

// Appends the nodes of a pattern such as "node[08-10,12]", each with the text before. There may be several pairs of
// brackets: "rack[0-1]node[1-2]". Throws InvalidArgument.
void append_nodes(std::string_view pattern, const std::string& before, std::vector<std::string>& names) {
  const auto open = pattern.find('[');
  const std::string so_far = before + std::string(pattern.substr(0, open));
  if (open == std::string_view::npos) {
    if (so_far.empty() || so_far.find(']') != std::string::npos) throw InvalidArgument("a node's name is missing");
    names.push_back(so_far);
    if (names.size() > kMaxNodes) throw InvalidArgument("more than " + std::to_string(kMaxNodes) + " nodes");
    return;
  }
  const auto close = pattern.find(']', open);
  if (close == std::string_view::npos) throw InvalidArgument("a bracket is open");
  for (const std::string_view range : split_outside_brackets(pattern.substr(open + 1, close - open - 1))) {
    const auto dash = range.find('-');
    const std::string_view first_digits = range.substr(0, dash);
    const auto first = parse_number<std::uint64_t>(first_digits);
    const auto last = dash == std::string_view::npos ? first : parse_number<std::uint64_t>(range.substr(dash + 1));
    if (!first || !last || *last < *first || *last - *first >= kMaxNodes) {
      throw InvalidArgument("\"" + std::string(range) + "\" is no range of nodes");
    }
    for (std::uint64_t i = 0; i <= *last - *first; ++i) {
      std::string digits = std::to_string(*first + i);
      if (digits.size() < first_digits.size()) digits.insert(0, first_digits.size() - digits.size(), '0');
      append_nodes(pattern.substr(close + 1), so_far + digits, names);
    }
  }
}

}  // namespace

std::vector<std::string> expand_nodelist(std::string_view text) {
  std::vector<std::string> names;
  try {
    for (const std::string_view part : split_outside_brackets(text)) append_nodes(part, "", names);
  } catch (const InvalidArgument& error) {
    throw InvalidArgument("the list of nodes \"" + std::string(text.substr(0, 200)) + "\": " + error.what());
  }
  return names;
}

bool is_started_by(int pid) {
  if (pid <= 0) return false;
  for (int ancestor = getppid(); ancestor > 0; ancestor = parent_of(ancestor)) {
    if (ancestor == pid) return true;
  }
  return false;
}

bool is_same_rank(Launcher launcher, const Environment& one, const Environment& other) {
  bool any = false;
  const bool is_elastic =
      launcher == Launcher::hvdrun && (one.contains("HVD_PROCESS") || other.contains("HVD_PROCESS"));
  const std::vector<const char*> of_process{"HVD_PROCESS", "HVD_STORE"};  // ranks change
  for (const char* name : is_elastic ? of_process : variables_of(launcher)) {
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
