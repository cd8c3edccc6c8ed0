// Assigns ranks to hosts, from the hosts' slots, -np, -map-by and -rank-by with Open MPI's meaning. Pure.
//
// Programs that name no hosts share the slots of the programs before them. A program fills a host before it takes the
// next (by slot, and by any unit smaller than a host), takes one slot of each host in turn (by node), or N per unit of
// each (ppr:N:UNIT). Ranks are numbered host by host, or round-robin over the hosts (-rank-by node, or mapping by
// node). If oversubscription is allowed, the excess ranks go to the hosts in turn.
#pragma once

#include <concepts>
#include <optional>
#include <string>
#include <vector>

#include "launcher/plan/binding.h"
#include "launcher/plan/host_plan.h"
#include "launcher/plan/hosts.h"

namespace hvd::launcher {

// Formats a count for messages: "1 rank", "2 ranks".
std::string several(std::integral auto count, const char* noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

// --slots-per-host: the slots of hosts for which no number is given.
struct SlotsRule {
  enum class Each { core, hwthread, gpu, gpu_or_core, fixed };
  Each each = Each::core;
  int number = 0;  // if fixed
  bool operator==(const SlotsRule&) const = default;
};

// "core", "hwthread", "gpu" or a number; throws InvalidArgument.
SlotsRule parse_slots_rule(const std::string& text);

// Throws InvalidArgument if the rule is `gpu` and the host has none.
int slots_of(const HostSlots& host, const SlotsRule& rule, const HostResources& resources);

// A host of a pool.
struct HostCapacity {
  int host = 0;  // its number in the job
  int slots = 1;
  std::optional<int> max_slots{};
  int units = 1;  // the number of its units that ppr counts: count_units() in binding.h
  int ranks = 0;  // that are placed there

  int free_slots() const;
  bool is_full() const;
};

// The hosts that some of the programs may use.
struct HostPool {
  std::vector<HostCapacity> hosts;
  bool limited = true;  // false: the number of slots is not given, and -np alone decides
};

struct ProgramSlots {
  std::optional<int> num_proc;  // empty: all slots that are left
  int pool = 0;                 // index of its pool
};

struct PlacedRank {
  int host = 0;  // its number in the job, as is `program`
  int program = 0;
  RankNumbers numbers;
};

// Returns the ranks in order. Hosts' numbers index `host_names`: one may be in several pools. Throws InvalidArgument.
std::vector<PlacedRank> place_ranks(const std::vector<ProgramSlots>& programs, std::vector<HostPool> pools,
                                    const std::vector<std::string>& host_names, const Binding& binding,
                                    bool oversubscribe);

}  // namespace hvd::launcher
