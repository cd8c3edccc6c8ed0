// The hosts of -H or of a file: which, how many slots on each, and how many processes follow from that. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::launcher {

// On a host, and in a job.
inline constexpr int kMaxSlots = 1'000'000;

struct HostSlots {
  std::string host;
  int slots = 1;
  bool operator==(const HostSlots&) const = default;
};

// "localhost:4,127.0.0.1:2"; a host without a number has one slot. Throws InvalidArgument.
std::vector<HostSlots> parse_hosts(std::string_view text);

// The lines of a hostfile: "HOST slots=N", as Open MPI and Horovod have it (max_slots=N beside it is not looked at), or
// "HOST:N", as MPICH has it; a host without a number has one slot. Behind # is a comment. Throws InvalidArgument, with
// the line's number.
std::vector<HostSlots> parse_hostfile(std::string_view text);

// How many ranks to start on this host, whose name is `own_hostname`. Without -np that is the number of slots, without
// hosts there are as many slots as processes. Throws InvalidArgument: neither given, a host that is not this one, or
// more processes than slots, unless that is all right (`oversubscribe`), or than kMaxSlots.
int count_local_ranks(std::optional<int> num_proc, const std::vector<HostSlots>& hosts, std::string_view own_hostname,
                      bool oversubscribe);

}  // namespace hvd::launcher
