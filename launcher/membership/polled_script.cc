#include "launcher/membership/polled_script.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <sstream>
#include <string_view>
#include <thread>
#include <utility>

#include "core/base/error.h"
#include "launcher/plan/host_plan.h"

namespace hvd::launcher {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{1} << 20;
constexpr Duration kTidyingTime = 5s;  // of a script that stays
constexpr std::string_view kEndOfList = "---\n";

}  // namespace

PolledScript::PolledScript(EventLoop& loop, const SignalSource& signals, std::string command, Duration interval,
                           Errors errors, Callbacks callbacks)
    : loop_(loop),
      signals_(signals),
      command_(std::move(command)),
      interval_(interval),
      errors_(errors),
      callbacks_(std::move(callbacks)),
      timer_(loop, [this] { on_time(); }) {
  timer_.set(Clock::now());
}

PolledScript::~PolledScript() {
  if (is_watching_ && pid_ > 0) {
    kill(pid_, SIGTERM);
    const Deadline deadline = deadline_after(kTidyingTime);
    while (waitpid(pid_, nullptr, WNOHANG) == 0 && Clock::now() < deadline) std::this_thread::sleep_for(5ms);
  }
  kill_script();
}

void PolledScript::on_time() {
  if (pid_ < 0) return start_script();
  has_timed_out_ = true;
  kill_script();
}

void PolledScript::start_script() {
  text_.clear();
  status_.reset();
  has_timed_out_ = is_watching_ = false;
  try {
    const FileDescriptor nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
    auto [reader, writer] = make_pipe();
    ChildStart start;
    start.program = "/bin/sh";
    start.arguments = {"sh", "-c", command_};
    start.environment = to_entries(parse_environment(environ));
    start.standard_input = nothing.get();
    start.standard_output = writer.get();
    start.standard_error = errors_ == Errors::passed_on ? STDERR_FILENO : writer.get();
    start.open_files = raise_open_files();
    pid_ = start_child(start, signals_);
    output_ = std::make_unique<OutputPipe>(loop_, std::move(reader), [this](std::string_view bytes) {
      if (text_.size() < kMaxBytes) text_ += bytes;
      if (callbacks_.listed) report_lists();
      if (bytes.empty()) finish_if_complete();
    });
    timer_.set(deadline_after(kScriptTimeout));
  } catch (const Error& error) {
    pid_ = -1;
    timer_.set(deadline_after(interval_));
    callbacks_.failed(error.what());
  }
}

void PolledScript::report_lists() {
  std::size_t begin = 0;
  while (true) {
    std::size_t end = text_.find(kEndOfList, begin);
    while (end != std::string::npos && end > begin && text_[end - 1] != '\n') end = text_.find(kEndOfList, end + 1);
    if (end == std::string::npos) break;
    is_watching_ = true;
    timer_.set(std::nullopt);
    callbacks_.listed(text_.substr(begin, end - begin));
    begin = end + kEndOfList.size();
  }
  text_.erase(0, begin);
}

void PolledScript::child_ended(pid_t pid, ExitStatus status) {
  if (pid != pid_) return;
  pid_ = -1;
  status_ = status;
  output_->close_when_empty();  // what the script has left running may hold it
  finish_if_complete();
}

void PolledScript::finish_if_complete() {
  if (!status_ || !output_->closed()) return;
  const ExitStatus status = *std::exchange(status_, std::nullopt);
  timer_.set(deadline_after(interval_));
  if (has_timed_out_) {
    const auto limit = static_cast<int>(seconds(kScriptTimeout));
    return callbacks_.failed("has not ended within " + std::to_string(limit) + " s, and was killed");
  }
  if (is_watching_ && status.ok()) return;  // it is started again
  if (is_watching_) return callbacks_.failed(ending_text(status) + ", and is started again");
  callbacks_.ended(text_, status);
}

std::vector<HostSlots> parse_discovered_hosts(std::string_view text) {
  std::string list;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    const auto first = line.find_first_not_of(" \t\r");
    if (first == std::string::npos) continue;
    list += (list.empty() ? "" : ",") + line.substr(first, line.find_last_not_of(" \t\r") + 1 - first);
  }
  return list.empty() ? std::vector<HostSlots>() : parse_hosts(list, std::nullopt, "its list");
}

HostDiscovery::HostDiscovery(EventLoop& loop, const SignalSource& signals, std::string command, Duration interval,
                             Callbacks callbacks)
    : callbacks_(std::move(callbacks)),
      script_(loop, signals, std::move(command), interval, PolledScript::Errors::passed_on,
              {.ended = [this](const std::string& output, ExitStatus status) { on_ended(output, status); },
               .failed = [this](const std::string& cause) { fail(cause); },
               .listed = [this](const std::string& list) { on_list(list); }}) {}

void HostDiscovery::on_ended(const std::string& output, ExitStatus status) {
  if (!status.ok()) return fail(ending_text(status));
  on_list(output);
}

void HostDiscovery::on_list(const std::string& output) {
  try {
    std::vector<HostSlots> hosts = parse_discovered_hosts(output);
    last_warning_.clear();
    if (last_ && *last_ == hosts) return;
    last_ = std::move(hosts);
    callbacks_.found(*last_);
  } catch (const InvalidArgument& error) {
    fail(error.what());
  }
}

void HostDiscovery::fail(const std::string& cause) {
  if (std::exchange(last_warning_, cause) == cause) return;
  callbacks_.warning("--host-discovery-script " + script_.command() + ": " + cause + "; the hosts stay as they are");
}

}  // namespace hvd::launcher
