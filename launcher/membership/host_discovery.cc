#include "launcher/membership/host_discovery.h"

#include <fcntl.h>
#include <unistd.h>

#include <csignal>
#include <sstream>
#include <utility>

#include "core/base/error.h"
#include "launcher/plan/host_plan.h"

namespace hvd::launcher {
namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 20;  // of the script's output

}  // namespace

std::vector<HostSlots> parse_discovered_hosts(std::string_view text) {
  std::string list;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    const auto first = line.find_first_not_of(" \t\r");
    if (first == std::string::npos) continue;
    list += (list.empty() ? "" : ",") + line.substr(first, line.find_last_not_of(" \t\r") + 1 - first);
  }
  return list.empty() ? std::vector<HostSlots>() : parse_hosts(list);
}

HostDiscovery::HostDiscovery(EventLoop& loop, const SignalSource& signals, std::string command, Duration interval,
                             Callbacks callbacks)
    : loop_(loop),
      signals_(signals),
      command_(std::move(command)),
      interval_(interval),
      callbacks_(std::move(callbacks)),
      timer_(loop, [this] { on_time(); }) {
  timer_.set(Clock::now());
}

void HostDiscovery::on_time() {
  if (pid_ < 0) return start_script();
  has_timed_out_ = true;
  kill_script();
}

void HostDiscovery::start_script() {
  text_.clear();
  status_.reset();
  has_timed_out_ = false;
  try {
    const FileDescriptor nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
    auto [reader, writer] = make_pipe();
    ChildStart start;
    start.program = "/bin/sh";
    start.arguments = {"sh", "-c", command_};
    start.environment = to_entries(parse_environment(environ));
    start.standard_input = nothing.get();
    start.standard_output = writer.get();
    start.standard_error = STDERR_FILENO;
    getrlimit(RLIMIT_NOFILE, &start.open_files);
    pid_ = start_child(start, signals_);
    output_ = std::make_unique<OutputPipe>(loop_, std::move(reader), [this](std::string_view bytes) {
      if (text_.size() < kMostBytes) text_ += bytes;
      if (bytes.empty()) finish_if_complete();
    });
    timer_.set(deadline_after(kDiscoveryTimeout));
  } catch (const Error& error) {
    pid_ = -1;
    fail(error.what());
  }
}

void HostDiscovery::child_ended(pid_t pid, ExitStatus status) {
  if (pid != pid_) return;
  pid_ = -1;
  status_ = status;
  output_->close_when_empty();  // what the script has left running may hold it
  finish_if_complete();
}

void HostDiscovery::finish_if_complete() {
  if (!status_ || !output_->closed()) return;
  const ExitStatus status = *std::exchange(status_, std::nullopt);
  timer_.set(deadline_after(interval_));
  if (has_timed_out_) {
    const auto limit = static_cast<int>(seconds(kDiscoveryTimeout));
    return fail("has printed no hosts within " + std::to_string(limit) + " s, and was killed");
  }
  if (!status.ok()) return fail(ending_text(status));
  try {
    std::vector<HostSlots> hosts = parse_discovered_hosts(text_);
    last_complaint_.clear();
    if (last_ && *last_ == hosts) return;
    last_ = std::move(hosts);
    callbacks_.found(*last_);
  } catch (const InvalidArgument& error) {
    fail(error.what());
  }
}

void HostDiscovery::fail(const std::string& cause) {
  timer_.set(deadline_after(interval_));
  if (std::exchange(last_complaint_, cause) == cause) return;
  callbacks_.complaint("--host-discovery-script " + command_ + ": " + cause + "; the hosts stay as they are");
}

}  // namespace hvd::launcher
