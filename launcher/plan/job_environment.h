// Builds the environment of each rank: hvdrun's own environment, then -x, then the rank's place in the job. Pure.
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

// The rendezvous variables that are the same for all ranks of a host. The key is passed in the environment only: all
// users can read a command line.
struct HostRendezvous {
  std::string hostname;
  std::string store;  // as Address::to_string() writes it
  std::string job_key_hex;
  std::string address{};  // numeric, where other hosts reach this one; empty: ranks find it out themselves
  int group_rank = 0;     // the host's number among those that have ranks
  std::string master_address{}, master_port{};  // on the host of rank 0, for a server that PyTorch starts there
};

// Parses "NAME=value" entries, as in `environ`.
Environment parse_environment(const char* const* entries);
std::vector<std::string> to_entries(const Environment& environment);

// Applies -x with mpirun's meaning: "VAR=value" sets, "VAR" passes the present value. Returns the names that have none.
std::vector<std::string> apply_exports(Environment& environment, const std::vector<std::string>& exports);

// The variables of the place override those of the same names in `base`.
Environment environment_of_rank(Environment base, const RankPlace& place, const HostRendezvous& rendezvous);

}  // namespace hvd::launcher
