#include "core/base/cpus.h"

#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstddef>
#include <thread>

namespace hvd {

namespace {

constexpr std::size_t kFewestCpus = 1024, kMostCpus = 1 << 16;

}  // namespace

std::vector<std::uint64_t> allowed_cpus() {
  std::vector<std::uint64_t> words(kFewestCpus / 64);
  // The kernel requires room for all possible CPUs.
  while (sched_getaffinity(0, words.size() * 8, reinterpret_cast<cpu_set_t*>(words.data())) != 0) {
    if (errno == EINVAL && words.size() < kMostCpus / 64) {
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
    return error == std::errc() && value >= 0 && value < static_cast<int>(kMostCpus);
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
