#include "launcher/processes/process_tree.h"

#include <dirent.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <memory>

#include "launcher/processes/child_process.h"

namespace hvd::launcher {
namespace {

constexpr int kLookAgainMs = 1;

}  // namespace

std::vector<ProcessEntry> list_processes() {
  std::vector<ProcessEntry> result;
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(opendir("/proc"), closedir);
  if (!folder) return result;
  while (const dirent* item = readdir(folder.get())) {
    if (item->d_name[0] < '1' || item->d_name[0] > '9') continue;
    if (const auto entry = read_process_stat(std::atoi(item->d_name))) result.push_back(*entry);
  }
  return result;
}

std::vector<ProcessEntry> descendants(pid_t root, const std::vector<ProcessEntry>& all,
                                      const std::vector<pid_t>& except) {
  std::vector<ProcessEntry> result;
  const auto add_children_of = [&](pid_t parent) {
    for (const ProcessEntry& entry : all) {
      const bool excepted = std::find(except.begin(), except.end(), entry.pid) != except.end();
      if (entry.parent == parent && entry.pid != parent && !excepted) result.push_back(entry);
    }
  };
  // The list is not an atomic snapshot: with reused pids it could contain a cycle, so the result is limited to the
  // number of processes.
  add_children_of(root);
  for (std::size_t next = 0; next < result.size() && result.size() <= all.size(); ++next) {
    add_children_of(result[next].pid);
  }
  return result;
}

std::vector<ProcessEntry> living_descendants(const std::vector<pid_t>& except) {
  std::vector<ProcessEntry> result = descendants(getpid(), list_processes(), except);
  std::erase_if(result, [](const ProcessEntry& entry) { return entry.zombie; });
  return result;
}

bool kill_descendants(const std::vector<pid_t>& except, Deadline deadline) {
  for (int empty_looks = 0; empty_looks < 2;) {
    const std::vector<ProcessEntry> found = living_descendants(except);
    for (const ProcessEntry& entry : found) kill(entry.pid, SIGKILL);
    empty_looks = found.empty() ? empty_looks + 1 : 0;
    if (found.empty()) continue;
    if (Clock::now() >= deadline) return false;
    poll(nullptr, 0, kLookAgainMs);
  }
  return true;
}

std::vector<std::pair<pid_t, ExitStatus>> JobProcesses::reap() {
  std::vector<std::pair<pid_t, ExitStatus>> ended = reap_children();
  std::erase_if(ended, [this](const auto& entry) { return ranks_.erase(entry.first) == 0; });
  return ended;
}

void JobProcesses::signal_ranks(int signal) const {
  for (const pid_t pid : ranks_) kill(-pid, signal);
}

void JobProcesses::signal_all(int signal) const {
  signal_ranks(signal);
  if (!any_left()) return;
  for (const ProcessEntry& entry : living_descendants({})) {
    if (!ranks_.contains(entry.group)) kill(entry.pid, signal);
  }
}

bool JobProcesses::any_left() const { return has_children(); }

std::vector<pid_t> JobProcesses::list_left() const {
  std::vector<pid_t> result;
  for (const ProcessEntry& entry : living_descendants({})) result.push_back(entry.pid);
  return result;
}

}  // namespace hvd::launcher
