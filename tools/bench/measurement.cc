#include "tools/bench/measurement.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <hvd.hpp>
#include <numeric>
#include <span>
#include <vector>

#include "tools/bench/statistics.h"
#include "tools/bench/workload.h"

namespace hvd::bench {

namespace {

using Clock = std::chrono::steady_clock;

constexpr double kRoundSeconds = 0.005;  // approximate duration of consecutive calls
constexpr double kMinRounds = 5;
constexpr double kMaxRounds = 100'000;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// The maximum of `value` over the ranks.
template <typename T>
T largest(T value) {
  allreduce(std::span(&value, 1), max);
  return value;
}

class Rounds {
 public:
  explicit Rounds(Workload& workload) : workload_(workload) {}

  // Returns the seconds per call on this rank.
  double time(int calls) {
    workload_.rewrite(round_);
    barrier({.name = "bench.begin"});
    const Clock::time_point start = Clock::now();
    for (int call = 0; call < calls; ++call) workload_.run();
    const double time = seconds_since(start) / calls;
    barrier({.name = "bench.end"});  // checking takes CPUs from ranks that still work
    errors_ += workload_.count_errors(round_++, calls);
    return time;
  }

  std::int64_t errors() const { return errors_; }

 private:
  Workload& workload_;
  int round_ = 0;
  std::int64_t errors_ = 0;
};

// The first call, which maps memory and registers names, is not representative. Consecutive calls may be much faster
// than a single one, because ranks need not negotiate repeated calls: the number is therefore found in several steps.
int choose_calls(Rounds& rounds, int max_calls) {
  rounds.time(1);
  int calls = 1;
  for (;;) {
    const double more = kRoundSeconds / largest(rounds.time(calls));
    const int wanted = static_cast<int>(std::clamp<double>(more, 1, max_calls));
    if (wanted < 2 * calls) return wanted;
    calls = wanted;
  }
}

int choose_rounds(Rounds& rounds, int calls, double seconds) {
  const Clock::time_point start = Clock::now();
  rounds.time(calls);
  return static_cast<int>(std::clamp(seconds / largest(seconds_since(start)), kMinRounds, kMaxRounds));
}

std::int64_t total_elements(const TensorSet& row) { return std::accumulate(row.begin(), row.end(), std::int64_t{0}); }

}  // namespace

Measured measure(const Settings& settings, const TensorSet& row) {
  const std::unique_ptr<Workload> workload = make_workload(settings, row);
  Rounds rounds(*workload);
  Measured result{.bytes = total_elements(row) * static_cast<std::int64_t>(size_of(settings.dtype)),
                  .tensors = static_cast<std::int64_t>(row.size())};
  result.calls = choose_calls(rounds, workload->max_calls());
  for (int round = 0; round < settings.warmup; ++round) rounds.time(result.calls);
  result.rounds = choose_rounds(rounds, result.calls, settings.seconds);

  std::vector<double> times;
  for (int round = 0; round < result.rounds; ++round) times.push_back(rounds.time(result.calls) * 1e6);
  allreduce(times, max);
  result.min_us = *std::min_element(times.begin(), times.end());
  result.median_us = quantile(times, 0.5);
  result.p99_us = quantile(times, 0.99);
  result.algbw = static_cast<double>(result.bytes) / result.median_us / 1e3;
  result.busbw = result.algbw * busbw_factor(settings.collective, size());
  result.errors = rounds.errors();
  allreduce(std::span(&result.errors, 1));
  return result;
}

}  // namespace hvd::bench
