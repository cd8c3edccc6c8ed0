#include "launcher/plan/plan_text.h"

#include <algorithm>

#include "launcher/plan/cpus.h"
#include "launcher/plan/several.h"
#include "launcher/plan/start_command.h"

namespace hvd::launcher {
namespace {

using Row = std::vector<std::string>;

std::string table(const std::vector<Row>& rows, const std::string& indent) {
  std::vector<std::size_t> widths(rows.front().size());
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const Row& row : rows) {
    std::string line = indent;
    for (std::size_t i = 0; i < row.size(); ++i) line += row[i] + std::string(widths[i] - row[i].size() + 2, ' ');
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

std::string of(int number, int size) { return std::to_string(number) + "/" + std::to_string(size); }

std::string ranks_text(const PlannedHost& host, bool several_programs) {
  std::vector<Row> rows{{"rank", "local", "cross", "CPUs", "GPUs"}};
  if (several_programs) rows.front().emplace_back("program");
  for (const PlannedRank& rank : host.ranks) {
    const RankPlace& place = rank.place;
    rows.push_back({of(place.rank, place.size), of(place.local_rank, place.local_size),
                    of(place.cross_rank, place.cross_size), rank.cpus.empty() ? "all" : format_cpu_list(rank.cpus),
                    rank.gpus.empty() ? "as they are" : rank.gpus});
    if (several_programs) rows.back().push_back(std::to_string(rank.program));
  }
  return table(rows, "  ");
}

std::string environment_text(const PlannedRank& rank) {
  std::string text = "  environment of rank " + std::to_string(rank.place.rank) + ":\n";
  for (const auto& [name, value] : rank.environment) {
    text += "    " + name + "=" + (name == "HVD_JOB_KEY" ? "(secret)" : shell_quoted(value)) + "\n";
  }
  return text;
}

}  // namespace

std::string plan_text(const PlannedJob& job) {
  std::size_t ranks = 0;
  for (const PlannedHost& host : job.hosts) ranks += host.ranks.size();
  std::string text = several(ranks, "rank") + " on " + several(job.hosts.size(), "host") +
                     (job.hosts_from.empty() ? "" : ", from " + job.hosts_from) + "\n";
  for (std::size_t i = 0; i < job.programs.size(); ++i) {
    text += "program" + (job.programs.size() > 1 ? " " + std::to_string(i) : "") + ": " +
            shell_quoted(job.programs[i]) + "\n";
  }
  for (const PlannedHost& host : job.hosts) {
    text += "\n" + host.name + ": " + several(host.ranks.size(), "rank") + ", " +
            several(static_cast<std::size_t>(host.slots), "slot") + "\n";
    text +=
        "  started by: " + (host.start_command.empty() ? "hvdrun itself, on this machine" : host.start_command) + "\n";
    text += ranks_text(host, job.programs.size() > 1);
    for (const PlannedRank& rank : host.ranks) {
      if (!rank.environment.empty()) text += environment_text(rank);
    }
  }
  return text;
}

}  // namespace hvd::launcher
