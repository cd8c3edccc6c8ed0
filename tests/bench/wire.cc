// What an allreduce between hosts costs, counted, beside a ring that one would write by hand (hand_written_ring.h):
//
//   hvdrun -np 2 -H a,b build/release/tests/bench/bench_wire --sizes 1M,16M,64M
//
// The ways take turns. Each row has the median time, and for each MB of the tensor, on an average rank: system calls,
// turns of threads that they gave up because they waited, and milliseconds of CPU in the program and in the kernel.
// Values are drawn anew for each round and checked after it. Needs root, to count.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <hvd.hpp>

#include "tests/bench/hand_written_ring.h"
#include "tests/bench/regression/system_calls.h"

namespace {

using hvd::bench::connect_ring;
using hvd::bench::RingCalls;

constexpr int kWarmUpRounds = 2;

struct Usage {
  double calls = 0, switches = 0, user_s = 0, kernel_s = 0;
};

struct Way {
  std::string title;
  std::function<void(std::span<float>)> allreduce;
  std::vector<double> seconds{};  // by round
  Usage used{};                   // in all rounds
};

Usage usage(const hvd::bench::SystemCalls& calls) {
  const auto in_seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  return {calls.so_far(), static_cast<double>(used.ru_nvcsw), in_seconds(used.ru_utime), in_seconds(used.ru_stime)};
}

// Rank 0's; the others' are multiples.
float value_at(std::size_t i, int round) {
  return static_cast<float>((i + 7 * static_cast<std::size_t>(round)) % 97 + 1);
}

void fill(std::span<float> values, int round) {
  const auto factor = static_cast<float>(hvd::rank() + 1);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = value_at(i, round) * factor;
}

void check(std::span<const float> values, int round, const std::string& title) {
  const auto factor = static_cast<float>(hvd::size() * (hvd::size() + 1) / 2);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i] != value_at(i, round) * factor) throw std::runtime_error(title + ": wrong values");
  }
}

void take_round(Way& way, std::span<float> values, int round, const hvd::bench::SystemCalls& calls) {
  fill(values, round);
  hvd::barrier();
  const Usage before = usage(calls);
  const auto begin = std::chrono::steady_clock::now();
  way.allreduce(values);
  const auto end = std::chrono::steady_clock::now();
  const Usage after = usage(calls);
  check(values, round, way.title);
  if (round < kWarmUpRounds) return;
  way.seconds.push_back(std::chrono::duration<double>(end - begin).count());
  way.used.calls += after.calls - before.calls - 2;  // without usage()'s own
  way.used.switches += after.switches - before.switches;
  way.used.user_s += after.user_s - before.user_s;
  way.used.kernel_s += after.kernel_s - before.kernel_s;
}

void print(const Way& way, std::size_t bytes) {
  std::vector<double> seconds = way.seconds;
  const double each = static_cast<double>(bytes) / 1e6 * static_cast<double>(seconds.size()) * hvd::size();
  std::vector<double> sums{way.used.calls / each, way.used.switches / each, 1e3 * way.used.user_s / each,
                           1e3 * way.used.kernel_s / each};
  hvd::allreduce(sums);
  std::nth_element(seconds.begin(), seconds.begin() + static_cast<std::ptrdiff_t>(seconds.size() / 2), seconds.end());
  if (hvd::rank() != 0) return;
  std::printf("%10zu B  %-22s %9.3f ms  %8.1f %8.2f  %7.3f %7.3f\n", bytes, way.title.c_str(),
              1e3 * seconds[seconds.size() / 2], sums[0], sums[1], sums[2], sums[3]);
  std::fflush(stdout);
}

void run(const std::vector<std::uint64_t>& sizes, int rounds) {
  const hvd::bench::SystemCalls calls;  // before hvd starts threads
  const hvd::Session session;
  const auto sockets = connect_ring(RingCalls::sockets), zerocopy = connect_ring(RingCalls::zerocopy),
             uring = connect_ring(RingCalls::uring);
  if (hvd::rank() == 0) {
    std::printf("%12s  %-22s %12s  %8s %8s  %7s %7s\n", "size", "way", "median", "calls/MB", "waits/MB", "user/MB",
                "kernel");
  }
  for (const std::uint64_t bytes : sizes) {
    std::vector<float> values(bytes / sizeof(float));
    std::vector<Way> ways{
        {.title = "hvd", .allreduce = [](std::span<float> x) { hvd::allreduce(x, hvd::sum, {.name = "wire"}); }},
        {.title = "by hand", .allreduce = [&](std::span<float> x) { sockets->allreduce(x); }},
        {.title = "by hand, MSG_ZEROCOPY", .allreduce = [&](std::span<float> x) { zerocopy->allreduce(x); }},
        {.title = "by hand, io_uring", .allreduce = [&](std::span<float> x) { uring->allreduce(x); }}};
    for (int round = 0; round < kWarmUpRounds + rounds; ++round) {
      for (Way& way : ways) take_round(way, values, round, calls);
    }
    for (const Way& way : ways) print(way, bytes);
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::uint64_t> sizes{1 << 20, 16 << 20, 64 << 20};
  int rounds = 15;
  CLI::App app("Counts what an allreduce between hosts takes, beside a ring written by hand.");
  app.add_option("--sizes", sizes, "Bytes, for instance 64K,16M")->delimiter(',')->transform(CLI::AsSizeValue(false));
  app.add_option("--rounds", rounds, "Of each size")->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  try {
    run(sizes, rounds);
    return EXIT_SUCCESS;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_wire: %s\n", error.what());
    return EXIT_FAILURE;
  }
}
