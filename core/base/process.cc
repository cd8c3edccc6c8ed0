#include "core/base/process.h"

#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <fstream>
#include <sstream>
#include <system_error>
#include <utility>

#include "core/base/error.h"

namespace hvd {

namespace {

// pthread_create does not report which limit was reached.
std::string limits() {
  std::string text;
  rlimit limit{};
  if (getrlimit(RLIMIT_NPROC, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY)
    text += std::to_string(limit.rlim_cur) + " processes and threads of this user: ulimit -u; ";
  if (const std::string address_space = address_space_limit(); !address_space.empty()) text += address_space + "; ";
  return " (the limit may be: " + text + "pids.max of the container or cgroup)";
}

constexpr std::size_t kMinCpus = 1024, kMaxCpus = 1 << 16;

}  // namespace

Environment parse_environment(const char* const* entries) {
  Environment result;
  for (; entries != nullptr && *entries != nullptr; ++entries) {
    const std::string entry = *entries;
    const auto equals = entry.find('=');
    if (equals != std::string::npos) result.emplace(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return result;
}

std::thread start_thread(std::string_view name, std::function<void()> body) {
  std::string shown(name.substr(0, 15));
  try {
    return std::thread([shown, body = std::move(body)] {
      pthread_setname_np(pthread_self(), shown.c_str());
      body();
    });
  } catch (const std::system_error& error) {
    throw Internal("cannot start thread " + shown + ": " + error_text(error.code().value()) + limits());
  }
}

std::optional<ProcessEntry> read_process_stat(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string text;
  std::getline(file, text, '\0');
  return parse_process_stat(text);
}

std::optional<ProcessEntry> parse_process_stat(std::string_view text) {
  ProcessEntry entry;
  if (std::from_chars(text.data(), text.data() + text.size(), entry.pid).ec != std::errc()) return std::nullopt;
  // The program's name is in parentheses and may contain anything, parentheses too.
  const auto name_end = text.rfind(')');
  if (name_end == std::string_view::npos) return std::nullopt;
  std::istringstream fields{std::string(text.substr(name_end + 1))};
  char state = 0;
  if (!(fields >> state >> entry.parent >> entry.group)) return std::nullopt;
  std::string skipped;
  for (int field = 6; field < 20; ++field) fields >> skipped;
  int threads = 0;
  fields >> threads;
  entry.stopped = state == 'T';
  entry.zombie = (state == 'Z' || state == 'X') && threads <= 1;
  return entry;
}

std::vector<std::uint64_t> allowed_cpus() {
  std::vector<std::uint64_t> words(kMinCpus / 64);
  // The kernel requires room for all possible CPUs.
  while (sched_getaffinity(0, words.size() * 8, reinterpret_cast<cpu_set_t*>(words.data())) != 0) {
    if (errno == EINVAL && words.size() < kMaxCpus / 64) {
      words.assign(words.size() * 2, 0);
      continue;
    }
    words.assign(1, 0);  // not permitted: use the C++ library's count, of which more than 64 make no difference
    for (unsigned cpu = 0; cpu < std::clamp(std::thread::hardware_concurrency(), 1U, 64U); ++cpu) {
      words.front() |= std::uint64_t{1} << cpu;
    }
    break;
  }
  while (words.size() > 1 && words.back() == 0) words.pop_back();
  return words;
}

std::vector<int> parse_cpu_numbers(const std::string& text) {
  std::vector<int> cpus;
  const char* next = text.data();
  const char* const end = next + text.size();
  const auto number = [&](int& value) {
    const auto [rest, error] = std::from_chars(next, end, value);
    next = rest;
    return error == std::errc() && value >= 0 && value < static_cast<int>(kMaxCpus);
  };
  while (next != end) {
    int first = 0;
    if (!number(first)) return {};
    int last = first;
    if (next != end && *next == '-') {
      ++next;
      if (!number(last) || last < first) return {};
    }
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
    if (next != end && *next++ != ',') return {};
  }
  return cpus;
}

}  // namespace hvd
