// The hosts of a job with the number of slots on each: parses -H, hostfiles, and the allocations of batch systems
// (Slurm, LSF, PBS). Pure, except for the files that some of them write.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/plan/host_plan.h"

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

// Parses "node1:4,b,me@c:2"; b has `without_number` slots, if that is not empty. Entries of the same host add up.
// Throws InvalidArgument, which begins with `where`.
std::vector<HostSlots> parse_hosts(std::string_view text, std::optional<int> without_number = 1,
                                   const std::string& where = "-H");

// Parses the lines of a hostfile: "HOST slots=N max_slots=M username=NAME" (Open MPI, Horovod) or "HOST:N user=NAME"
// (MPICH). # and // begin a comment, and = may have spaces around it. Entries of the same host add up; a host named
// once and without a number has no slots yet, as in Open MPI. Throws InvalidArgument, with the line's number; `name` is
// the file's name in messages.
std::vector<HostSlots> parse_hostfile(std::string_view text, const std::string& name = "the hostfile");

// -H beside a hostfile, as in Open MPI: the file says which hosts there are and how they are reached, and -H which of
// them are used, and their slots. Throws InvalidArgument if `chosen` has a host that is not in the file; `name` as
// above.
std::vector<HostSlots> choose_hosts(std::vector<HostSlots> chosen, const std::vector<HostSlots>& of_file,
                                    const std::string& name);

// The name of this machine, and its addresses as inet_ntop() writes them.
struct LocalNames {
  std::string hostname;
  std::vector<std::string> addresses;
};

// Whether a host is this machine, by its name, or by one of the addresses that its name resolves to.
bool is_this_host(std::string_view host, const LocalNames& own, const std::vector<std::string>& resolved = {});

// Merges the entries for this machine, which `is_local` marks, into the first of them.
std::vector<HostSlots> with_local_host_once(const std::vector<HostSlots>& hosts, const std::vector<bool>& is_local);

struct Allocation {
  bool is_slurms = false;
  std::string source;  // for messages: "Slurm's allocation (SLURM_JOB_NODELIST)"
  std::vector<HostSlots> hosts;
};

// Returns the allocation to use if neither -H nor --hostfile is given; empty if there is none. Throws InvalidArgument
// for malformed variables; exceptions of `read_file` propagate.
// Of an allocation that consists of this machine alone the caller takes the number of ranks if no option gives it:
// such an allocation does not limit -np.
std::optional<Allocation> read_allocation(const Environment& environment,
                                          const std::function<std::string(const std::string& path)>& read_file);

}  // namespace hvd::launcher
