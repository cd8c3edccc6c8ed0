#include "launcher/standings_table.h"

#include <cstdint>
#include <utility>

namespace hvd::launcher {
namespace {

// Of the set of all ranks, for these can be compared; 0: none among the last operations.
std::uint64_t submitted_by(const Standing& standing) {
  for (const StandingInSet& set : standing.sets) {
    if (set.process_set == 0) return set.submitted;
  }
  return 0;
}

using Number = std::int64_t (*)(const Standing&);

constexpr std::pair<const char*, Number> kColumns[] = {
    {"pid", [](const Standing& standing) -> std::int64_t { return standing.pid; }},
    {"stopped", [](const Standing& standing) -> std::int64_t { return standing.stopped ? 1 : 0; }},
    {"operations", [](const Standing& standing) { return static_cast<std::int64_t>(standing.operations); }},
    {"bytes", [](const Standing& standing) { return static_cast<std::int64_t>(standing.bytes); }},
    {"locked_steps", [](const Standing& standing) { return static_cast<std::int64_t>(standing.locked_steps); }},
    {"rounds", [](const Standing& standing) { return static_cast<std::int64_t>(standing.rounds); }},
    {"lock_state", [](const Standing& standing) { return static_cast<std::int64_t>(standing.lock_state); }},
    {"exposed_ns", [](const Standing& standing) -> std::int64_t { return standing.exposed_time.count(); }},
    {"since_progress_ns",
     [](const Standing& standing) -> std::int64_t {
       return standing.since_progress.value_or(Duration::zero()).count();
     }},
    {"submitted", [](const Standing& standing) { return static_cast<std::int64_t>(submitted_by(standing)); }},
    {"in_flight",
     [](const Standing& standing) { return static_cast<std::int64_t>(standing.open.size() + standing.more_open); }},
    {"stalled", [](const Standing& standing) -> std::int64_t { return standing.stall.empty() ? 0 : 1; }},
};

}  // namespace

std::string standings_table(const std::vector<RankStanding>& ranks) {
  std::string text = "rank\thost";
  for (const auto& [name, number] : kColumns) text += std::string("\t") + name;
  text += "\n";
  for (const RankStanding& rank : ranks) {
    text += std::to_string(rank.rank) + "\t" + printable(rank.host);
    for (const auto& [name, number] : kColumns) {
      text += "\t" + (rank.standing ? std::to_string(number(*rank.standing)) : "-");
    }
    text += "\n";
  }
  return text;
}

}  // namespace hvd::launcher
