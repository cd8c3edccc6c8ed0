// Which CPUs each rank of this host may run on, from -bind-to, -map-by and -rank-by, as Open MPI means them. Pure.
//
// Mapping gives each rank one or more cores (hardware threads, if it goes by those, or by slots of which ranks are
// bound to those): in a row, or from each socket or NUMA node in turn, or so many from each before the next
// (ppr:N:socket). Ranking says in which order these places are numbered. Binding says how wide a rank's place is: a
// hardware thread of each core, its cores, or the whole socket or NUMA node around them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launcher/plan/cpus.h"

namespace hvd::launcher {

enum class CpuUnit { slot, hwthread, core, numa, socket, node };

struct Binding {
  CpuUnit map_by = CpuUnit::slot;
  int per_unit = 0;                // of ppr; 0: one from each in turn
  int cores_per_rank = 1;          // of PE=
  std::optional<CpuUnit> rank_by;  // empty: as they are mapped
  std::optional<CpuUnit> bind_to;  // the node: nobody is; empty: to cores if PE= or ppr asks for some, else nobody
  bool oversubscribe = false;      // of -map-by: more ranks than slots are all right
  bool overload = false;           // ranks may share what they are bound to
  bool operator==(const Binding&) const = default;
};

// The values of the options; each throws InvalidArgument with the option's name and what it may be.
void parse_bind_to(std::string_view text, Binding& binding);  // none, core, hwthread, socket, numa; :overload-allowed
void parse_map_by(std::string_view text, Binding& binding);   // slot, ..., ppr:N:socket; :PE=N
void parse_rank_by(std::string_view text, Binding& binding);  // slot, core, hwthread, socket, numa, node

// By rank: the numbers of its CPUs, ascending; none if ranks are not bound. Throws InvalidArgument if there are too
// few.
std::vector<std::vector<int>> bind_ranks(int ranks, const Binding& binding, const std::vector<Cpu>& cpus);

// Of --cpu-set: "0-3,8" in ascending order, each once. Throws InvalidArgument.
std::vector<int> parse_cpu_set(std::string_view text);

// Those of `cpus` that are in the set; an empty set: all. Throws InvalidArgument, with the host's name, if one is
// missing.
std::vector<Cpu> cpus_within(const std::vector<Cpu>& cpus, const std::vector<int>& set, const std::string& host);

// How many of a unit these CPUs make; of slots and nodes, one.
int count_units(const std::vector<Cpu>& cpus, CpuUnit unit);

}  // namespace hvd::launcher
