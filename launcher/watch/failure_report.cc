#include "launcher/watch/failure_report.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <utility>

namespace hvd::launcher {
namespace {

std::string how_it_ended(const RankEnd& end) {
  const ExitStatus& status = end.status;
  if (end.ended_without_shutdown()) return "ended without shutdown (exit code 0)";
  if (!status.by_signal) return "exit code " + std::to_string(status.value);
  std::string text = "killed by " + signal_name(status.value);
  if (status.core_dumped) text += " (core dumped)";
  if (status.value == SIGKILL) text += " (by somebody, or by the kernel for want of memory)";
  if (status.value == SIGXFSZ) text += " (a file has grown to the limit of ulimit -f)";
  return text;
}

std::string what_became_of(const std::optional<RankEnd>& end) {
  if (!end) return "could not be killed";
  if (end->lost) return "out of reach";
  const ExitStatus& status = end->status;
  if (status.ok()) return end->ended_without_shutdown() ? "ended without shutdown" : "ended well";
  if (!status.by_signal) return "exited with code " + std::to_string(status.value);
  const std::string name = signal_name(status.value);
  return status.value == end->signal_sent ? "had to be ended with " + name : "killed by " + name;
}

// One clause for each way in which ranks ended, in the order of its lowest rank.
std::string fates(const std::vector<std::optional<RankEnd>>& ends, const std::vector<int>& except) {
  std::vector<std::pair<std::string, std::vector<int>>> groups;
  for (int rank = 0; rank < static_cast<int>(ends.size()); ++rank) {
    if (std::find(except.begin(), except.end(), rank) != except.end()) continue;
    const std::string fate = what_became_of(ends[static_cast<std::size_t>(rank)]);
    auto group = std::find_if(groups.begin(), groups.end(), [&](const auto& entry) { return entry.first == fate; });
    if (group == groups.end()) group = groups.insert(groups.end(), {fate, {}});
    group->second.push_back(rank);
  }
  std::string text;
  for (const auto& [fate, ranks] : groups) text += (text.empty() ? "" : "; ") + list_ranks(ranks) + " " + fate;
  return text;
}

}  // namespace

std::string list_ranks(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t first = 0; first < ranks.size();) {
    std::size_t last = first;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) ++last;
    if (first > 0) text += ", ";
    text += std::to_string(ranks[first]);
    if (last > first) text += (last == first + 1 ? ", " : "-") + std::to_string(ranks[last]);
    first = last + 1;
  }
  return text;
}

std::string rank_failure(int rank, const std::string& host, const RankEnd& end) {
  const std::string name = "rank " + std::to_string(rank) + (host.empty() ? "" : " on " + host);
  return end.said.cause.empty() ? name + " has failed: " + how_it_ended(end) : name + " " + end.said.cause;
}

std::string host_loss(const LostHost& host) {
  return "host " + host.name + " (" + list_ranks(host.ranks) + ") is lost: " + host.cause;
}

std::string failure_report(const Failure& failure, const std::vector<std::optional<RankEnd>>& ends) {
  char age[32];
  std::snprintf(age, sizeof age, "%.1f", seconds(failure.age));
  const RankEnd& end = *ends[static_cast<std::size_t>(failure.rank)];
  std::string text = "hvdrun: rank " + std::to_string(failure.rank) +
                     (failure.host.empty() ? "" : " on " + failure.host) + " failed" +
                     (ends.size() > 1 ? " first: " : ": ") + how_it_ended(end) + " (pid " +
                     std::to_string(failure.pid) + ", after " + age + " s)\n";
  if (!end.said.cause.empty()) text += "hvdrun: it " + end.said.cause + "\n";
  if (failure.last_lines.empty()) {
    text += "hvdrun: it wrote nothing to its " + failure.stream + "\n";
  } else {
    text += "hvdrun: the last lines of its " + failure.stream + ":\n";
    for (const std::string& line : failure.last_lines) text += "    " + line + "\n";
  }
  if (ends.size() > 1) text += "hvdrun: the others: " + fates(ends, {failure.rank}) + "\n";
  return text;
}

std::string lost_host_report(const std::vector<LostHost>& lost, const std::vector<std::optional<RankEnd>>& ends) {
  std::string text;
  std::vector<int> named;
  for (const LostHost& host : lost) {
    text += "hvdrun: " + host_loss(host) + "\n";
    named.insert(named.end(), host.ranks.begin(), host.ranks.end());
  }
  const std::string others = fates(ends, named);
  return others.empty() ? text : text + "hvdrun: the others: " + others + "\n";
}

std::string timeout_report(const std::vector<std::optional<RankEnd>>& ends) {
  return "hvdrun: the job has reached its --timeout; " + fates(ends, {}) + "\n";
}

std::string interruption_report(int signal, const std::vector<std::optional<RankEnd>>& ends) {
  return "hvdrun: ended by " + signal_name(signal) + "; " + fates(ends, {}) + "\n";
}

}  // namespace hvd::launcher
