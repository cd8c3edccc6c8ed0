// Parses the hosts of -H, of a hostfile or of an allocation, with the number of slots on each. Pure.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::launcher {

// The limit of slots on a host, and in a job.
inline constexpr int kMaxSlots = 1'000'000;

struct HostSlots {
  std::string host;
  std::optional<int> slots{};      // empty: derived from the host's resources (slots_of() in slots.h)
  std::optional<int> max_slots{};  // a limit even for --oversubscribe
  std::string user{};              // to log in as; empty: ssh's default
  bool operator==(const HostSlots&) const = default;
};

// Parses "node1:4,me@node2:2"; an entry without a number counts as one slot (or `without_number`). Entries of the same
// host add up. Throws InvalidArgument.
std::vector<HostSlots> parse_hosts(std::string_view text, int without_number = 1);

// Parses the lines of a hostfile: "HOST slots=N max_slots=M" (Open MPI, Horovod) or "HOST:N" (MPICH). # begins a
// comment. Entries of the same host add up; a host named once and without a number has no slots yet, as in Open MPI.
// Throws InvalidArgument, with the line's number; `name` is the file's name in messages.
std::vector<HostSlots> parse_hostfile(std::string_view text, const std::string& name = "the hostfile");

// Adds a host, or its slots if the list has the host already. Throws InvalidArgument if there are too many.
void add_host(std::vector<HostSlots>& hosts, HostSlots host);

// The name of this machine, and its addresses as inet_ntop() writes them.
struct LocalNames {
  std::string hostname;
  std::vector<std::string> addresses;
};

// Whether a host is this machine, by its name, or by one of the addresses that its name resolves to.
bool is_this_host(std::string_view host, const LocalNames& own, const std::vector<std::string>& resolved = {});

// Merges the entries for this machine, which `is_local` marks, into the first of them.
std::vector<HostSlots> with_local_host_once(const std::vector<HostSlots>& hosts, const std::vector<bool>& is_local);

}  // namespace hvd::launcher
