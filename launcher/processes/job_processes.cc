#include "launcher/processes/job_processes.h"

#include <csignal>

#include "launcher/processes/child_process.h"
#include "launcher/processes/process_tree.h"

namespace hvd::launcher {

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
