#include "launcher/plan/host_plan.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <sstream>
#include <utility>

#include "launcher/plan/host_resources.h"
#include "launcher/plan/slots.h"
#include "launcher/plan/start_command.h"

namespace hvd::launcher {
namespace {

bool is_file(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_regular_file(path, error);
}

bool is_executable(const std::string& path) { return is_file(path) && access(path.c_str(), X_OK) == 0; }

ProgramUnusable not_executable(const std::string& path) {
  const std::string hint = path.ends_with(".py") ? "; start it as: python " + path : "; chmod +x makes it so";
  return ProgramUnusable(126, path + " is not executable" + hint);
}

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

std::string ranks_text(const HostPlan& host) {
  const bool several_programs = host.programs.size() > 1;
  std::vector<Row> rows{{"rank", "local", "cross", "CPUs", "GPUs"}};
  if (several_programs) rows.front().emplace_back("program");
  for (const RankPlan& rank : host.ranks) {
    const RankPlace& place = rank.place;
    rows.push_back({of(place.rank, place.size), of(place.local_rank, place.local_size),
                    of(place.cross_rank, place.cross_size), rank.cpus.empty() ? "all" : format_cpu_list(rank.cpus),
                    rank.visible_gpus.empty() ? "as they are" : rank.visible_gpus});
    if (several_programs) rows.back().push_back(std::to_string(rank.program));
  }
  return table(rows, "  ");
}

std::string environment_text(const HostPlan& host, const RankPlan& rank) {
  std::string text = "  environment of rank " + std::to_string(rank.place.rank) + ":\n";
  for (const auto& [name, value] : environment_of_rank(host, rank, {})) {
    text += "    " + name + "=" + (name == "HVD_JOB_KEY" ? "(secret)" : shell_quoted(value)) + "\n";
  }
  return text;
}

}  // namespace

Environment with_exports(const ProgramPlan& program) {
  Environment environment = program.environment;
  for (const auto& [name, value] : program.exports) environment[name] = value;
  return environment;
}

Environment environment_of_rank(const HostPlan& plan, const RankPlan& rank, Environment base) {
  Environment environment = environment_of_rank(std::move(base), rank.place, plan.rendezvous);
  set_torch_variables(environment, rank.place, plan.rendezvous);
  keep_chosen_master(environment, plan.programs[rank.program].exports);
  return environment;
}

std::string search_path_of(const Environment& environment) {
  if (const auto path = environment.find("PATH"); path != environment.end()) return path->second;
  std::string path(confstr(_CS_PATH, nullptr, 0), '\0');
  confstr(_CS_PATH, path.data(), path.size());
  return path.c_str();  // drops the terminating zero
}

std::string find_program(const std::string& name, const std::string& search_path) {
  if (name.find('/') != std::string::npos) {
    if (is_executable(name)) return name;
    std::error_code error;
    if (std::filesystem::is_directory(name, error)) throw ProgramUnusable(126, name + " is a directory");
    if (is_file(name)) throw not_executable(name);
    throw ProgramUnusable(127, "program not found: " + name);
  }
  std::string without_permission;
  std::istringstream folders(search_path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::string path = (folder.empty() ? "." : folder) + "/" + name;
    if (is_executable(path)) return path;
    if (without_permission.empty() && is_file(path)) without_permission = path;
  }
  if (!without_permission.empty()) throw not_executable(without_permission);
  if (is_executable(name))
    throw ProgramUnusable(127, "program not found in PATH: " + name + "; is ./" + name + " meant?");
  if (is_file(name) && name.ends_with(".py")) {
    throw ProgramUnusable(127, "program not found in PATH: " + name + "; is python " + name + " meant?");
  }
  throw ProgramUnusable(127, "program not found in PATH: " + name);
}

std::string find_program_from(const std::string& folder, const std::string& name, const std::string& search_path) {
  if (folder.empty()) return find_program(name, search_path);
  const bool is_path = name.find('/') != std::string::npos;
  return std::filesystem::absolute(
             find_program(is_path ? (std::filesystem::path(folder) / name).string() : name, search_path))
      .string();
}

std::string plan_text(const std::string& hosts_from, const std::vector<PlannedHost>& hosts) {
  std::size_t ranks = 0;
  for (const PlannedHost& host : hosts) ranks += host.plan.ranks.size();
  std::string text = several(ranks, "rank") + " on " + several(hosts.size(), "host") +
                     (hosts_from.empty() ? "" : ", from " + hosts_from) + "\n";
  const std::vector<ProgramPlan>& programs = hosts.front().plan.programs;
  for (std::size_t i = 0; i < programs.size(); ++i) {
    text += "program" + (programs.size() > 1 ? " " + std::to_string(i) : "") + ": " +
            shell_quoted(programs[i].arguments) + "\n";
  }
  for (const auto& [host, slots, start_command] : hosts) {
    text += "\n" + host.name + ": " + several(host.ranks.size(), "rank") + ", " + several(slots, "slot") + "\n";
    text += "  started by: " + (start_command.empty() ? "hvdrun itself, on this machine" : start_command) + "\n";
    text += ranks_text(host);
    for (const RankPlan& rank : host.ranks) text += environment_text(host, rank);
  }
  return text;
}

}  // namespace hvd::launcher
