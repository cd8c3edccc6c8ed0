// The hosts of -H, of a hostfile or of an allocation: which, and how many slots on each. Pure.
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
  std::optional<int> slots{};      // empty: what the host says of itself decides (fill_slots() in slots.h)
  std::optional<int> max_slots{};  // that not even --oversubscribe exceeds
  std::string user{};              // to log in as; empty: whoever ssh takes
  bool operator==(const HostSlots&) const = default;
};

// "node1:4,me@node2:2", with one slot (or `without_number`) for each mention without a number. A host that is named
// again adds up. Throws InvalidArgument.
std::vector<HostSlots> parse_hosts(std::string_view text, int without_number = 1);

// The lines of a hostfile: "HOST slots=N max_slots=M", as Open MPI and Horovod have it, or "HOST:N", as MPICH has it.
// Behind # is a comment. A host that is named again adds up; one named once and without a number has no slots yet, as
// Open MPI's. Throws InvalidArgument, with the line's number; `name` is what the file is called in messages.
std::vector<HostSlots> parse_hostfile(std::string_view text, const std::string& name = "the hostfile");

// Adds a host, or its slots to those that the list has of it. Throws InvalidArgument if there get to be too many.
void add_host(std::vector<HostSlots>& hosts, HostSlots host);

// What is known of this machine: its name, and its addresses as inet_ntop() writes them.
struct LocalNames {
  std::string hostname;
  std::vector<std::string> addresses;
};

// Whether a host is this machine, by its name, or by one of the addresses that its name stands for.
bool is_this_host(std::string_view host, const LocalNames& own, const std::vector<std::string>& resolved = {});

// Puts together what are several names of this machine, in the place of the first: `is_local` says which are.
std::vector<HostSlots> with_local_host_once(const std::vector<HostSlots>& hosts, const std::vector<bool>& is_local);

}  // namespace hvd::launcher
