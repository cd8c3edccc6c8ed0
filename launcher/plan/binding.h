// The CPUs that each rank of a host is bound to, from -bind-to, -map-by and -rank-by with Open MPI's meaning. Pure.
//
// Mapping gives each rank one or more cores (or hardware threads: when mapping by hwthread, or by slot and binding to
// hwthread): consecutive ones, one from each socket or NUMA node in turn, or N from each before the next
// (ppr:N:socket). Ranking defines the order in which these places are numbered. Binding defines how wide a place is:
// one hardware thread of each core, the cores, or the whole socket or NUMA node around them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/plan/host_resources.h"

namespace hvd::launcher {

enum class CpuUnit { slot, hwthread, core, numa, socket, node };

struct Binding {
  CpuUnit map_by = CpuUnit::slot;
  int per_unit = 0;                   // N of ppr:N:unit; 0: one from each in turn
  std::optional<int> cores_per_rank;  // N of PE=N
  std::optional<CpuUnit> rank_by;     // empty: in the order of mapping
  std::optional<CpuUnit> bind_to;     // node: not bound; empty: to cores with PE= or ppr, else not bound
  bool oversubscribe = false;         // by -map-by: more ranks than slots are allowed
  bool no_oversubscribe = false;      // by -map-by: the same as --nooversubscribe
  bool overload = false;              // ranks may share the CPUs that they are bound to
  bool operator==(const Binding&) const = default;
};

// Parse the values of the options; each throws InvalidArgument with the option's name and the values it may have.
void parse_bind_to(std::string_view text, Binding& binding);  // none, core, hwthread, socket, numa; :overload-allowed
void parse_map_by(std::string_view text, Binding& binding);   // slot, ..., ppr:N:socket; :PE=N; only modifiers, too
void parse_rank_by(std::string_view text, Binding& binding);  // slot, core, hwthread, socket, numa, node

// The ascending CPU numbers of each rank; empty: not bound. Throws InvalidArgument if there are too few CPUs.
std::vector<std::vector<int>> bind_ranks(int ranks, const Binding& binding, const std::vector<Cpu>& cpus);

// Parses --cpu-set, "0-3,8", into ascending, unique numbers. Throws InvalidArgument.
std::vector<int> parse_cpu_set(std::string_view text);

// The CPUs in the set; all if it is empty. Throws InvalidArgument, with the host's name, if the host lacks one.
std::vector<Cpu> cpus_within(const std::vector<Cpu>& cpus, const std::vector<int>& set, const std::string& host);

// The number of different units (cores, sockets, ...) among these CPUs; 1 for slots and nodes.
int count_units(const std::vector<Cpu>& cpus, CpuUnit unit);

}  // namespace hvd::launcher
