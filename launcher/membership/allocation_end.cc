#include "launcher/membership/allocation_end.h"

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>

#include "core/base/error.h"
#include "launcher/plan/host_resources.h"
#include "launcher/processes/child_process.h"

namespace hvd::launcher {
namespace {

// Appends what comes until the end or the deadline; returns whether the end has come.
bool read_until(int fd, Deadline deadline, std::string& text) {
  while (true) {
    pollfd ready{.fd = fd, .events = POLLIN, .revents = 0};
    const int found = poll(&ready, 1, poll_timeout(deadline));
    if (found < 0 && errno == EINTR) continue;
    if (found <= 0) return false;
    std::array<char, 512> bytes;
    const ssize_t count = read(fd, bytes.data(), bytes.size());
    if (count <= 0) return count == 0;
    text.append(bytes.data(), static_cast<std::size_t>(count));
  }
}

// Returns what squeue prints, its errors included. Throws Error if it does not end in time.
std::string ask_squeue(const std::string& job, const Environment& environment, const SignalSource& signals) {
  auto [reader, writer] = make_pipe();
  ChildStart start;
  start.program = find_program("", "squeue", search_path_of(environment));
  start.arguments = {"squeue", "--noheader", "--jobs=" + job, "--format=%L"};
  start.environment = to_entries(environment);
  start.standard_input = STDIN_FILENO;
  start.standard_output = start.standard_error = writer.get();
  getrlimit(RLIMIT_NOFILE, &start.open_files);
  const pid_t pid = start_child(start, signals);
  writer.reset();
  std::string text;
  const bool has_ended = read_until(reader.get(), deadline_after(kLongestQuery), text);
  kill(-pid, SIGKILL);
  while (waitpid(pid, nullptr, 0) < 0 && errno == EINTR) continue;
  if (!has_ended) throw Timeout("no answer within " + std::to_string(kLongestQuery / 1s) + " s");
  return text.substr(0, text.find('\n'));
}

}  // namespace

std::optional<Duration> time_left_in(const Environment& environment, double now) {
  const auto found = environment.find("SLURM_JOB_END_TIME");
  if (found == environment.end()) return std::nullopt;
  char* end = nullptr;
  const double then = std::strtod(found->second.c_str(), &end);
  if (found->second.empty() || *end != '\0' || !(then > 0)) return std::nullopt;
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(std::clamp(then - now, 0.0, 1e9)));
}

std::optional<Duration> parse_time_left(std::string_view text) {
  static constexpr std::array kUnits = {1s, 60s, 3600s, 86400s};
  Duration left{};
  std::string_view rest = text;
  for (std::size_t unit = 0; unit < kUnits.size(); ++unit) {
    const auto mark = rest.find_last_of(unit == 2 ? "-" : ":");
    const auto number = number_within(rest.substr(mark == std::string_view::npos ? 0 : mark + 1), 0, 99999);
    if (!number) return std::nullopt;
    left += *number * kUnits[unit];
    if (mark == std::string_view::npos) return left;
    rest = rest.substr(0, mark);
  }
  return std::nullopt;
}

std::optional<TimePoint> time_limit_of(const Environment& environment, Duration margin, const SignalSource& signals,
                                       const std::function<void(const std::string& line)>& complain) {
  const auto job = environment.find("SLURM_JOB_ID");
  if (job == environment.end() || margin <= Duration::zero()) return std::nullopt;
  const auto since_1970 = std::chrono::system_clock::now().time_since_epoch();
  auto left = time_left_in(environment, std::chrono::duration<double>(since_1970).count());
  std::string cause;
  try {
    if (!left) cause = ask_squeue(job->second, environment, signals);
  } catch (const std::exception& error) {
    cause = error.what();
  }
  if (!left) left = parse_time_left(cause);
  if (left) return Clock::now() + *left - margin_within(margin, *left);
  if (cause != "UNLIMITED") {
    complain("Slurm's squeue does not tell when the allocation ends (" + cause +
             "), so the job does not end before; sbatch --signal=B:USR1@60 makes it");
  }
  return std::nullopt;
}

}  // namespace hvd::launcher
