#include "launcher/plan/binding.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <utility>

#include "core/base/error.h"
#include "core/base/process.h"
#include "core/base/text.h"

namespace hvd::launcher {
namespace {

struct NamedUnit {
  std::string_view name;
  CpuUnit unit;
};

constexpr NamedUnit kMapUnits[] = {
    {"slot", CpuUnit::slot},      {"core", CpuUnit::core}, {"hwthread", CpuUnit::hwthread}, {"socket", CpuUnit::socket},
    {"package", CpuUnit::socket}, {"numa", CpuUnit::numa}, {"node", CpuUnit::node}};
constexpr NamedUnit kRankUnits[] = {
    {"slot", CpuUnit::slot},     {"node", CpuUnit::node},      {"core", CpuUnit::core}, {"hwthread", CpuUnit::hwthread},
    {"socket", CpuUnit::socket}, {"package", CpuUnit::socket}, {"numa", CpuUnit::numa}};
constexpr NamedUnit kBindUnits[] = {{"none", CpuUnit::node},         {"core", CpuUnit::core},
                                    {"hwthread", CpuUnit::hwthread}, {"socket", CpuUnit::socket},
                                    {"package", CpuUnit::socket},    {"numa", CpuUnit::numa}};

// As in Open MPI, whose manual writes PACKAGE and OVERSUBSCRIBE, case does not matter.
template <std::size_t N>
CpuUnit unit_named(std::string_view name, const NamedUnit (&units)[N], const std::string& option) {
  const std::string word = in_lower_case(name);
  std::string names;
  for (const NamedUnit& unit : units) {
    if (unit.name == word) return unit.unit;
    names += (names.empty() ? "" : ", ") + std::string(unit.name);
  }
  throw InvalidArgument(option + " \"" + std::string(name) + "\": it may be " + names);
}

std::string_view take_until_colon(std::string_view& text) {
  const auto colon = text.find(':');
  const std::string_view part = text.substr(0, colon);
  text.remove_prefix(colon == std::string_view::npos ? text.size() : colon + 1);
  return part;
}

int number_of(const Cpu& cpu, CpuUnit unit) {
  switch (unit) {
    case CpuUnit::hwthread: return cpu.number;
    case CpuUnit::core: return cpu.core;
    case CpuUnit::numa: return cpu.numa;
    case CpuUnit::socket: return cpu.socket;
    case CpuUnit::slot:
    case CpuUnit::node: return 0;
  }
  return 0;
}

// The unit of mapping: the CPUs of a core, or one hardware thread.
using CpuGroup = std::vector<Cpu>;

std::vector<CpuGroup> cpu_groups_of(const std::vector<Cpu>& cpus, CpuUnit unit) {
  std::vector<CpuGroup> cpu_groups;
  for (const Cpu& cpu : cpus) {
    if (cpu_groups.empty() || number_of(cpu_groups.back().front(), unit) != number_of(cpu, unit))
      cpu_groups.emplace_back();
    cpu_groups.back().push_back(cpu);
  }
  return cpu_groups;
}

// One table of CPU groups per socket, per NUMA node, or for the whole host; ranks take groups from them.
class Tables {
 public:
  Tables(const std::vector<CpuGroup>& cpu_groups, CpuUnit unit) {
    for (const CpuGroup& cpu_group : cpu_groups) {
      const bool is_new =
          tables_.empty() || number_of(tables_.back().front().front(), unit) != number_of(cpu_group.front(), unit);
      if (is_new) tables_.emplace_back();
      tables_.back().push_back(cpu_group);
    }
    taken_.resize(tables_.size());
  }

  std::size_t count() const { return tables_.size(); }

  // Takes consecutive groups of a table. When it is used up, starts `again`, or returns an empty group.
  CpuGroup take(std::size_t table, int cpu_groups, bool again) {
    const std::vector<CpuGroup>& all = tables_[table];
    CpuGroup taken;
    for (int i = 0; i < cpu_groups; ++i) {
      std::size_t& next = taken_[table];
      if (next >= all.size() && !again) return {};
      const CpuGroup& cpu_group = all[next++ % all.size()];
      taken.insert(taken.end(), cpu_group.begin(), cpu_group.end());
    }
    return taken;
  }

 private:
  std::vector<std::vector<CpuGroup>> tables_;
  std::vector<std::size_t> taken_;
};

bool by_tables(CpuUnit unit) { return unit == CpuUnit::numa || unit == CpuUnit::socket; }

// Returns the CPU group of each rank, in the order of mapping.
std::vector<CpuGroup> map_ranks(int ranks, const Binding& binding, CpuUnit bind_to, const std::vector<Cpu>& cpus) {
  const bool threads =
      binding.map_by == CpuUnit::hwthread || (binding.map_by == CpuUnit::slot && bind_to == CpuUnit::hwthread);
  const bool wide = by_tables(bind_to);  // no rank gets cores of its own
  const bool asked_to_share =
      binding.per_unit > 1 && (binding.map_by == CpuUnit::core || binding.map_by == CpuUnit::hwthread);
  const bool may_share = wide || binding.overload || asked_to_share;
  Tables tables(cpu_groups_of(cpus, threads ? CpuUnit::hwthread : CpuUnit::core),
                binding.per_unit > 0 || by_tables(binding.map_by) ? binding.map_by : CpuUnit::node);
  std::vector<CpuGroup> mapped;
  for (int rank = 0; rank < ranks; ++rank) {
    const int turn = binding.per_unit > 0 ? rank / binding.per_unit : rank;
    const auto table = static_cast<std::size_t>(turn);
    if (binding.per_unit > 0 && table >= tables.count() && !binding.overload) {
      throw InvalidArgument("-N or -map-by ppr has places for " +
                            std::to_string(tables.count() * static_cast<std::size_t>(binding.per_unit)) +
                            " ranks here, not for " + std::to_string(ranks));
    }
    CpuGroup cpu_group = tables.take(table % tables.count(), binding.cores_per_rank.value_or(1), may_share);
    if (cpu_group.empty()) {
      throw InvalidArgument("there are too few " + std::string(threads ? "hardware threads" : "cores") +
                            " here to bind " + std::to_string(ranks) +
                            " ranks: add -oversubscribe, or say -bind-to none");
    }
    mapped.push_back(std::move(cpu_group));
  }
  return mapped;
}

// Reorders the places: one from each socket or NUMA node in turn; for smaller units, in ascending order.
void rank_places(std::vector<CpuGroup>& places, CpuUnit unit) {
  if (unit == CpuUnit::node || unit == CpuUnit::slot) return;
  const auto number = [unit](const CpuGroup& cpu_group) { return number_of(cpu_group.front(), unit); };
  std::ranges::stable_sort(places, {}, number);
  if (!by_tables(unit)) return;
  std::vector<std::pair<int, CpuGroup>> in_turn;  // each with its index in its unit
  for (std::size_t i = 0, first = 0; i < places.size(); ++i) {
    if (number(places[i]) != number(places[first])) first = i;
    in_turn.emplace_back(static_cast<int>(i - first), places[i]);
  }
  std::ranges::stable_sort(in_turn, {}, &std::pair<int, CpuGroup>::first);
  for (std::size_t i = 0; i < places.size(); ++i) places[i] = std::move(in_turn[i].second);
}

// Returns all CPUs of the units that contain the group's CPUs; one CPU of each core if the unit is a hardware thread.
std::vector<int> widen(const CpuGroup& cpu_group, CpuUnit unit, const std::vector<Cpu>& cpus) {
  std::vector<int> numbers;
  if (unit == CpuUnit::hwthread) {
    for (const CpuGroup& core : cpu_groups_of(cpu_group, CpuUnit::core)) numbers.push_back(core.front().number);
  } else {
    for (const Cpu& cpu : cpus) {
      const auto shares_unit = [&](const Cpu& own) { return number_of(own, unit) == number_of(cpu, unit); };
      // For sockets and NUMA nodes, only the one around the group's first core.
      if (by_tables(unit) ? shares_unit(cpu_group.front()) : std::ranges::any_of(cpu_group, shares_unit)) {
        numbers.push_back(cpu.number);
      }
    }
  }
  std::ranges::sort(numbers);
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  return numbers;
}

}  // namespace

void parse_bind_to(std::string_view text, Binding& binding) {
  const std::string_view unit = take_until_colon(text);
  if (!unit.empty() || text.empty()) binding.bind_to = unit_named(unit, kBindUnits, "-bind-to");
  if (text.empty()) return;
  if (in_lower_case(text) != "overload-allowed") {
    throw InvalidArgument("-bind-to: \"" + std::string(text) + "\" is not overload-allowed");
  }
  binding.overload = true;
}

void parse_map_by(std::string_view text, Binding& binding) {
  const bool has_modifiers_only = text.starts_with(':') && text.size() > 1;  // ":OVERSUBSCRIBE"
  std::string_view unit = take_until_colon(text);
  if (in_lower_case(unit) == "ppr") {
    const auto per_unit = number_within(take_until_colon(text), 1);
    if (!per_unit) throw InvalidArgument("-map-by ppr: write for instance ppr:2:socket");
    binding.per_unit = *per_unit;
    unit = take_until_colon(text);
  }
  if (!has_modifiers_only) binding.map_by = unit_named(unit, kMapUnits, "-map-by");
  while (!text.empty()) {
    const std::string modifier = in_lower_case(take_until_colon(text));
    if (modifier == "oversubscribe") {
      binding.oversubscribe = binding.overload = true;
    } else if (modifier == "overload-allowed") {
      binding.overload = true;
    } else if (const auto cores = modifier.starts_with("pe=") ? number_within(modifier.substr(3), 1) : std::nullopt) {
      binding.cores_per_rank = *cores;
    } else if (modifier == "nooversubscribe") {
      binding.no_oversubscribe = true;
    } else {
      throw InvalidArgument("-map-by: \"" + modifier + "\" is not PE=N or OVERSUBSCRIBE");
    }
  }
}

void parse_rank_by(std::string_view text, Binding& binding) {
  binding.rank_by = unit_named(text, kRankUnits, "-rank-by");
}

std::vector<std::vector<int>> bind_ranks(int ranks, const Binding& binding, const std::vector<Cpu>& cpus) {
  const bool asks_for_cores = binding.per_unit > 0 || binding.cores_per_rank;
  const CpuUnit bind_to = binding.bind_to.value_or(asks_for_cores ? CpuUnit::core : CpuUnit::node);
  if (bind_to == CpuUnit::node) return {};
  if (cpus.empty()) throw InvalidArgument("-bind-to: the CPUs of this host are not known");
  if (binding.cores_per_rank > static_cast<int>(cpus.size())) {
    throw InvalidArgument("-map-by PE=" + std::to_string(*binding.cores_per_rank) + ": there are too few cores here");
  }
  std::vector<CpuGroup> places = map_ranks(ranks, binding, bind_to, cpus);
  rank_places(places, binding.rank_by.value_or(CpuUnit::slot));
  std::vector<std::vector<int>> bound;
  for (const CpuGroup& place : places) bound.push_back(widen(place, bind_to, cpus));
  return bound;
}

std::vector<int> parse_cpu_set(std::string_view text) {
  std::vector<int> numbers = parse_cpu_numbers(std::string(text));
  if (numbers.empty() || text.ends_with(',')) {
    throw InvalidArgument("--cpu-set " + std::string(text) + ": numbers and ranges of CPUs, for instance 0-3,8");
  }
  std::ranges::sort(numbers);
  numbers.erase(std::unique(numbers.begin(), numbers.end()), numbers.end());
  return numbers;
}

std::vector<Cpu> cpus_within(const std::vector<Cpu>& cpus, const std::vector<int>& set, const std::string& host) {
  if (set.empty()) return cpus;
  std::vector<Cpu> kept;
  for (const Cpu& cpu : cpus) {
    if (std::ranges::binary_search(set, cpu.number)) kept.push_back(cpu);
  }
  if (kept.size() == set.size()) return kept;
  std::vector<int> there;
  for (const Cpu& cpu : cpus) there.push_back(cpu.number);
  std::ranges::sort(there);
  throw InvalidArgument("--cpu-set " + format_cpu_list(set) + ": of " + host + " ranks may use " +
                        (there.empty() ? "no CPUs that are known" : "the CPUs " + format_cpu_list(there)));
}

int count_units(const std::vector<Cpu>& cpus, CpuUnit unit) {
  if (unit == CpuUnit::slot || unit == CpuUnit::node) return 1;
  std::set<int> numbers;
  for (const Cpu& cpu : cpus) numbers.insert(number_of(cpu, unit));
  return static_cast<int>(numbers.size());
}

}  // namespace hvd::launcher
