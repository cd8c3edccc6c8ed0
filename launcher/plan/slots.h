// Which rank runs on which host: from the hosts' slots, -np, -map-by and -rank-by, as Open MPI means them. Pure.
//
// Programs that name no hosts share the slots of those before them. A program fills a host before it takes the next
// (by slot, and by all that is smaller than a host), takes one of each in turn (by node), or so many of each
// (ppr:N:UNIT). Ranks are numbered host by host, or round the hosts in turn (-rank-by node, and by node). Slots that
// are not there are taken, if that is all right, from each host in turn.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/plan/binding.h"
#include "launcher/plan/hosts.h"
#include "launcher/plan/job_environment.h"

namespace hvd::launcher {

// --slots-per-host: of hosts whose slots nobody has given.
struct SlotsRule {
  enum class Each { core, hwthread, gpu, gpu_or_core, fixed };
  Each each = Each::core;
  int number = 0;  // if fixed
  bool operator==(const SlotsRule&) const = default;
};

// "core", "hwthread", "gpu" or a number; throws InvalidArgument.
SlotsRule parse_slots_rule(const std::string& text);

// What a host says of itself.
struct HostResources {
  std::vector<Cpu> cpus;  // those that ranks may use
  int gpus = 0;
};

// Throws InvalidArgument if the host has nothing of what the rule asks for.
int slots_of(const HostSlots& host, const SlotsRule& rule, const HostResources& resources);

// One of the hosts that some programs may use.
struct HostCapacity {
  int host = 0;  // its number in the job
  int slots = 1;
  std::optional<int> max_slots{};
  int units = 1;  // how many it has of what ppr goes by: count_units() in binding.h
};

struct HostPool {
  std::vector<HostCapacity> hosts;
  bool limited = true;  // else nobody has said how many slots there are, and as many ranks run as -np says
};

struct ProgramSlots {
  std::optional<int> num_proc;  // empty: as many as there are slots left
  int pool = 0;                 // its number
};

struct PlacedRank {
  int host = 0;     // its number in the job
  int program = 0;  // its number in the job
  RankPlace place;
};

// By rank. Hosts are told apart by their numbers: the same one may be in several pools. `host_names` by number. Throws
// InvalidArgument.
std::vector<PlacedRank> place_ranks(const std::vector<ProgramSlots>& programs, const std::vector<HostPool>& pools,
                                    const std::vector<std::string>& host_names, const Binding& binding,
                                    bool oversubscribe);

}  // namespace hvd::launcher
