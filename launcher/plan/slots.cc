#include "launcher/plan/slots.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/base/error.h"

namespace hvd::launcher {
namespace {

using Hosts = std::vector<HostCapacity>;

long free_slots(const Hosts& hosts) {
  long sum = 0;
  for (const HostCapacity& host : hosts) sum += host.free_slots();
  return sum;
}

// By host of the pool: the number of ranks of a program on it.
using Counts = std::vector<int>;

// Assigns one rank at a time to the hosts in turn, as long as `may_take` allows. Returns the number of ranks left.
template <typename MayTake>
int deal(int ranks, Hosts& hosts, Counts& counts, const MayTake& may_take) {
  for (bool taken = true; taken && ranks > 0;) {
    taken = false;
    for (std::size_t i = 0; i < hosts.size() && ranks > 0; ++i) {
      if (!may_take(hosts[i])) continue;
      ++hosts[i].ranks;
      ++counts[i];
      --ranks;
      taken = true;
    }
  }
  return ranks;
}

// Assigns up to `wanted` ranks to each host before the next. Returns the number of ranks left.
template <typename Wanted>
int fill(int ranks, Hosts& hosts, Counts& counts, const Wanted& wanted) {
  for (std::size_t i = 0; i < hosts.size() && ranks > 0; ++i) {
    const int taken = std::min(ranks, wanted(hosts[i]));
    hosts[i].ranks += taken;
    counts[i] += taken;
    ranks -= taken;
  }
  return ranks;
}

int places(const HostCapacity& host, const Binding& binding) {
  const long number = static_cast<long>(binding.per_unit) * host.units;
  return static_cast<int>(std::min<long>(number, kMaxSlots));
}

InvalidArgument too_many(const ProgramSlots& program, const HostPool& pool, int ranks, long slots,
                         const std::vector<std::string>& host_names) {
  const bool one = pool.hosts.size() == 1;
  const std::string entry =
      one ? host_names[static_cast<std::size_t>(pool.hosts.front().host)] + ":" + std::to_string(ranks) : "HOST:N,...";
  return InvalidArgument((program.num_proc ? "-np " : "-N or -map-by ppr asks for ") + std::to_string(ranks) +
                         " but only " + several(slots, "slot") + "; raise it with -H " + entry +
                         (one ? "" : ", slots=N in a hostfile") + ", or with --oversubscribe");
}

int number_of_ranks(const ProgramSlots& program, const HostPool& pool, const Binding& binding) {
  if (program.num_proc) return *program.num_proc;
  if (binding.per_unit > 0) {
    long sum = 0;
    for (const HostCapacity& host : pool.hosts) sum += places(host, binding);
    return static_cast<int>(std::min<long>(sum, kMaxSlots + 1));
  }
  if (!pool.limited) throw InvalidArgument("how many processes? Say -np N, or -H localhost:N");
  const long slots = free_slots(pool.hosts);
  if (slots == 0) throw InvalidArgument("the programs before have taken all slots: say -np N, and --oversubscribe");
  return static_cast<int>(std::min<long>(slots, kMaxSlots + 1));
}

// Chooses the hosts of a program's ranks.
Counts take_slots(const ProgramSlots& program, HostPool& pool, const Binding& binding, bool oversubscribe,
                  const std::vector<std::string>& host_names) {
  Hosts& hosts = pool.hosts;
  const int ranks = number_of_ranks(program, pool, binding);
  if (ranks > kMaxSlots) {
    throw InvalidArgument(std::to_string(ranks) + " processes are more than " + std::to_string(kMaxSlots));
  }
  const long slots = free_slots(hosts);
  const bool too_few_slots = pool.limited && ranks > slots;
  if (too_few_slots && !oversubscribe) throw too_many(program, pool, ranks, slots, host_names);

  Counts counts(hosts.size());
  int left = ranks;
  if (binding.per_unit > 0) {
    left = fill(left, hosts, counts, [&](const HostCapacity& host) {
      const int all = places(host, binding);
      return oversubscribe || !pool.limited ? all : std::min(all, host.free_slots());
    });
    if (left > 0 && !oversubscribe) {
      throw InvalidArgument("-N or -map-by ppr has places for " + several(ranks - left, "rank") + ", not for " +
                            std::to_string(ranks));
    }
  } else if (!pool.limited) {
    left = fill(left, hosts, counts, [&](const HostCapacity&) { return ranks; });
  } else if (binding.map_by != CpuUnit::node) {
    left = fill(left, hosts, counts, [](const HostCapacity& host) { return host.free_slots(); });
  } else if (!too_few_slots) {
    left = deal(left, hosts, counts, [](const HostCapacity& host) { return host.free_slots() > 0; });
  }
  left = deal(left, hosts, counts, [](const HostCapacity& host) { return !host.is_full(); });
  const bool beyond = std::ranges::any_of(
      hosts, [](const HostCapacity& host) { return host.ranks > host.max_slots.value_or(kMaxSlots); });
  if (left > 0 || beyond) {
    throw InvalidArgument(several(ranks, "rank") + " are more than the hostfile's max_slots allow");
  }
  return counts;
}

// Appends the program's ranks in the order in which they are numbered.
void number_ranks(int program, const Hosts& hosts, Counts counts, bool in_turn, std::vector<PlacedRank>& ranks) {
  const auto place = [&](std::size_t i) {
    ranks.push_back({.host = hosts[i].host, .program = program, .numbers = {}});
  };
  if (!in_turn) {
    for (std::size_t i = 0; i < hosts.size(); ++i) {
      for (int n = 0; n < counts[i]; ++n) place(i);
    }
    return;
  }
  for (bool placed = true; placed;) {
    placed = false;
    for (std::size_t i = 0; i < hosts.size(); ++i) {
      if (counts[i] == 0) continue;
      --counts[i];
      place(i);
      placed = true;
    }
  }
}

bool numbers_in_turn(const Binding& binding) {
  if (binding.rank_by) return *binding.rank_by == CpuUnit::node;
  return binding.map_by == CpuUnit::node && binding.per_unit == 0;
}

// Local ranks are in the order of the ranks of a host; cross ranks number the hosts that have a local rank, in order.
void find_numbers(std::vector<PlacedRank>& ranks) {
  std::map<int, int> on_host;
  for (PlacedRank& rank : ranks) rank.numbers.local_rank = on_host[rank.host]++;
  std::map<int, std::set<int>> hosts_with;  // by local rank
  for (const PlacedRank& rank : ranks) hosts_with[rank.numbers.local_rank].insert(rank.host);
  std::map<std::pair<int, int>, int> cross_ranks;
  for (const auto& [local_rank, hosts] : hosts_with) {
    int next = 0;
    for (const int host : hosts) cross_ranks[{local_rank, host}] = next++;
  }
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    RankNumbers& numbers = ranks[i].numbers;
    numbers.rank = static_cast<int>(i);
    numbers.size = static_cast<int>(ranks.size());
    numbers.local_size = on_host[ranks[i].host];
    numbers.cross_rank = cross_ranks[{numbers.local_rank, ranks[i].host}];
    numbers.cross_size = static_cast<int>(hosts_with[numbers.local_rank].size());
  }
}

}  // namespace

SlotsRule parse_slots_rule(const std::string& text) {
  if (text == "core") return {.each = SlotsRule::Each::core};
  if (text == "hwthread") return {.each = SlotsRule::Each::hwthread};
  if (text == "gpu") return {.each = SlotsRule::Each::gpu};
  if (const auto number = number_within(text, 1, kMaxSlots)) return {.each = SlotsRule::Each::fixed, .number = *number};
  throw InvalidArgument("--slots-per-host " + text + ": a number, core, hwthread or gpu");
}

int slots_of(const HostSlots& host, const SlotsRule& rule, const HostResources& resources) {
  if (host.slots) return *host.slots;
  switch (rule.each) {
    case SlotsRule::Each::fixed: return rule.number;
    case SlotsRule::Each::core: return std::max(1, count_units(resources.cpus, CpuUnit::core));
    case SlotsRule::Each::hwthread: return std::max(1, count_units(resources.cpus, CpuUnit::hwthread));
    case SlotsRule::Each::gpu_or_core:
    case SlotsRule::Each::gpu: break;
  }
  if (resources.gpus > 0) return resources.gpus;
  if (rule.each == SlotsRule::Each::gpu_or_core) return slots_of(host, {.each = SlotsRule::Each::core}, resources);
  throw InvalidArgument("--slots-per-host gpu: " + host.host + " has no GPU; say how many slots it has");
}

int HostCapacity::free_slots() const { return std::max(0, slots - ranks); }

bool HostCapacity::is_full() const { return ranks >= max_slots.value_or(kMaxSlots); }

std::vector<PlacedRank> place_ranks(const std::vector<ProgramSlots>& programs, std::vector<HostPool> pools,
                                    const std::vector<std::string>& host_names, const Binding& binding,
                                    bool oversubscribe) {
  std::vector<PlacedRank> ranks;
  for (std::size_t i = 0; i < programs.size(); ++i) {
    HostPool& pool = pools[static_cast<std::size_t>(programs[i].pool)];
    const Counts counts = take_slots(programs[i], pool, binding, oversubscribe, host_names);
    number_ranks(static_cast<int>(i), pool.hosts, counts, numbers_in_turn(binding), ranks);
    if (ranks.size() > kMaxSlots) throw InvalidArgument("more than " + std::to_string(kMaxSlots) + " processes");
  }
  find_numbers(ranks);
  return ranks;
}

}  // namespace hvd::launcher
