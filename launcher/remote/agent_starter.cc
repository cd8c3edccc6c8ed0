#include "launcher/remote/agent_starter.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "launcher/loop/throw_errno.h"
#include "launcher/plan/job_environment.h"

namespace hvd::launcher {
namespace {

// An in-memory file, not a pipe, so that a slow reader blocks no writer.
FileDescriptor make_input(const std::string& bytes) {
  FileDescriptor input(memfd_create("hvd-agent-input", MFD_CLOEXEC));
  if (!input) throw_errno("memfd_create");
  if (write(input.get(), bytes.data(), bytes.size()) != static_cast<ssize_t>(bytes.size())) throw_errno("write");
  lseek(input.get(), 0, SEEK_SET);
  return input;
}

}  // namespace

AgentStarter::AgentStarter(EventLoop& loop, const SignalSource& signals, Listener listener)
    : loop_(loop), signals_(signals), listener_(std::move(listener)) {}

AgentStarter::~AgentStarter() {
  for (const auto& [pid, command] : commands_) kill(-pid, SIGKILL);
}

pid_t AgentStarter::start(int host, const std::string& command, const std::string& input) {
  const FileDescriptor bytes = make_input(input);
  ChildStart start;
  start.program = "/bin/sh";
  start.arguments = {"sh", "-c", command};
  start.environment = to_entries(parse_environment(environ));
  start.standard_input = bytes.get();
  auto [output_reader, output_writer] = make_pipe();
  start.standard_output = start.standard_error = output_writer.get();
  getrlimit(RLIMIT_NOFILE, &start.open_files);
  const pid_t pid = start_child(start, signals_);
  Command& entry = commands_[pid];
  entry.host = host;
  entry.output = std::make_unique<OutputPipe>(loop_, std::move(output_reader),
                                              [this, pid](std::string_view piece) { on_output(pid, piece); });
  return pid;
}

void AgentStarter::on_output(pid_t pid, std::string_view bytes) {
  const auto found = commands_.find(pid);
  if (found == commands_.end()) return;
  Command& command = found->second;
  std::string lines;
  command.lines.feed(bytes, lines);
  if (bytes.empty()) command.lines.flush(lines);
  while (!lines.empty()) {
    const auto end = lines.find_first_of("\r\n");
    const std::string line = lines.substr(0, end);
    if (!line.empty()) listener_.wrote(command.host, line);
    lines.erase(0, end == std::string::npos ? end : end + 1);
  }
}

bool AgentStarter::child_ended(pid_t pid, ExitStatus status) {
  const auto found = commands_.find(pid);
  if (found == commands_.end()) return false;
  found->second.output->close_when_empty();  // reports its last lines first
  const int host = found->second.host;
  commands_.erase(found);
  listener_.ended(host, status);
  return true;
}

void AgentStarter::signal(int host, int signal) {
  for (const auto& [pid, command] : commands_) {
    if (command.host == host) kill(-pid, signal);
  }
}

}  // namespace hvd::launcher
