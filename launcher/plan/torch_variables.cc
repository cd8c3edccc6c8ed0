#include "launcher/plan/torch_variables.h"

#include <algorithm>
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

}  // namespace

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

}  // namespace hvd::launcher
