#include "launcher/plan/job_environment.h"

namespace hvd::launcher {

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

}  // namespace hvd::launcher
