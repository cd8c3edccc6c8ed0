// The environment of each rank: what hvdrun itself was given, then -x, then the rank's place in the job. Pure.
#pragma once

#include <map>
#include <string>
#include <vector>

namespace hvd::launcher {

using Environment = std::map<std::string, std::string>;

struct RankPlace {
  int rank = 0, size = 1;
  int local_rank = 0, local_size = 1;
  int cross_rank = 0, cross_size = 1;
};

// What is the same for every rank of a host. The key travels in the environment only: a command line is readable by
// everybody.
struct HostRendezvous {
  std::string hostname;
  std::string store;  // as Address::to_string() writes it
  std::string job_key_hex;
  std::string address{};  // numeric, where other hosts reach this one; empty: as ranks find out themselves
  int group_rank = 0;     // the host's number among those that have ranks
  std::string master_address{}, master_port{};  // of the host of rank 0, for a server that PyTorch starts there
};

// From "NAME=value" entries, as `environ` has them.
Environment parse_environment(const char* const* entries);
std::vector<std::string> to_entries(const Environment& environment);

// -x, in mpirun's meaning: "VAR=value" sets, "VAR" passes the present value. Returns the names that have none.
std::vector<std::string> apply_exports(Environment& environment, const std::vector<std::string>& exports);

// The place wins over anything of the same names that was there before.
Environment environment_of_rank(Environment base, const RankPlace& place, const HostRendezvous& rendezvous);

}  // namespace hvd::launcher
