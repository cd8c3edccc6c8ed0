#include "launcher/watch/status_table.h"

#include <cstdint>
#include <utility>

namespace hvd::launcher {
namespace {

// In process set 0, so that ranks can be compared; 0 if none of the last operations is in it.
std::uint64_t submitted_by(const RankStatus& status) {
  for (const ProcessSetStatus& set : status.sets) {
    if (set.process_set == 0) return set.submitted;
  }
  return 0;
}

using Number = std::int64_t (*)(const RankStatus&);

constexpr std::pair<const char*, Number> kColumns[] = {
    {"pid", [](const RankStatus& status) -> std::int64_t { return status.pid; }},
    {"stopped", [](const RankStatus& status) -> std::int64_t { return status.stopped ? 1 : 0; }},
    {"operations", [](const RankStatus& status) { return static_cast<std::int64_t>(status.operations); }},
    {"bytes", [](const RankStatus& status) { return static_cast<std::int64_t>(status.bytes); }},
    {"locked_steps", [](const RankStatus& status) { return static_cast<std::int64_t>(status.locked_steps); }},
    {"rounds", [](const RankStatus& status) { return static_cast<std::int64_t>(status.rounds); }},
    {"lock_state", [](const RankStatus& status) { return static_cast<std::int64_t>(status.lock_state); }},
    {"exposed_ns", [](const RankStatus& status) -> std::int64_t { return status.exposed_time.count(); }},
    {"since_progress_ns",
     [](const RankStatus& status) -> std::int64_t { return status.since_progress.value_or(Duration::zero()).count(); }},
    {"submitted", [](const RankStatus& status) { return static_cast<std::int64_t>(submitted_by(status)); }},
    {"in_flight",
     [](const RankStatus& status) { return static_cast<std::int64_t>(status.open.size() + status.more_open); }},
    {"stalled", [](const RankStatus& status) -> std::int64_t { return status.stall.empty() ? 0 : 1; }},
};

}  // namespace

std::string status_table(const std::vector<StatusOfRank>& ranks) {
  std::string text = "rank\thost";
  for (const auto& [name, number] : kColumns) text += std::string("\t") + name;
  text += "\n";
  for (const StatusOfRank& rank : ranks) {
    text += std::to_string(rank.rank) + "\t" + printable(rank.host);
    for (const auto& [name, number] : kColumns) {
      text += "\t" + (rank.status ? std::to_string(number(*rank.status)) : "-");
    }
    text += "\n";
  }
  return text;
}

}  // namespace hvd::launcher
