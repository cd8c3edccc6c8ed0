#include "launcher/job_processes.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "launcher/process_tree.h"

namespace hvd::launcher {
namespace {

bool has_children() {
  siginfo_t info{};
  return waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0;
}

}  // namespace

std::vector<std::pair<pid_t, ExitStatus>> reap_children() {
  std::vector<std::pair<pid_t, ExitStatus>> result;
  int status = 0;
  for (pid_t pid = waitpid(-1, &status, WNOHANG); pid > 0; pid = waitpid(-1, &status, WNOHANG)) {
    result.emplace_back(pid, ExitStatus::from_wait(status));
  }
  return result;
}

JobProcesses::JobProcesses() {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  if (!has_children()) return;
  for (const ProcessEntry& entry : list_processes()) {
    if (entry.parent == getpid()) others_.push_back(entry.pid);
  }
}

std::vector<JobProcesses::Ended> JobProcesses::reap() {
  std::vector<Ended> result;
  for (const auto& [pid, status] : reap_children()) {
    const auto rank = ranks_.find(pid);
    const bool is_rank = rank != ranks_.end();
    result.push_back({.rank = is_rank ? rank->second : -1, .pid = pid, .status = status});
    if (is_rank) ranks_.erase(rank);
  }
  return result;
}

void JobProcesses::signal_ranks(int signal) const {
  for (const auto& [pid, rank] : ranks_) kill(-pid, signal);
}

void JobProcesses::signal_all(int signal) const {
  signal_ranks(signal);
  for (const ProcessEntry& entry : descendants(getpid(), list_processes(), others_)) {
    if (!entry.zombie && !ranks_.contains(entry.group)) kill(entry.pid, signal);
  }
}

bool JobProcesses::any_left() const {
  if (!has_children()) return false;
  return others_.empty() || !list_left().empty();
}

std::vector<pid_t> JobProcesses::list_left() const {
  std::vector<pid_t> result;
  for (const ProcessEntry& entry : descendants(getpid(), list_processes(), others_)) {
    if (!entry.zombie) result.push_back(entry.pid);
  }
  return result;
}

}  // namespace hvd::launcher
