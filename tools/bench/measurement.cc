#include "tools/bench/measurement.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <hvd.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <span>
#include <variant>

#include "tools/bench/reference.h"

namespace hvd::bench {

namespace {

constexpr int kRoot = 0;

// Memory of a tensor, of the kind that the user requested.
template <typename T>
class Buffer {
 public:
  Buffer(std::int64_t elements, bool arena) {
    const auto size = static_cast<std::size_t>(elements);
    if (arena) {
      memory_ = std::vector<T, allocator<T>>(size);
    } else {
      memory_ = std::vector<T>(size);
    }
  }
  std::span<T> values() {
    return std::visit([](auto& memory) { return std::span<T>(memory); }, memory_);
  }

 private:
  std::variant<std::vector<T>, std::vector<T, allocator<T>>> memory_;
};

// All tensors are consecutive parts of one long sequence of elements, whose values the patterns define.
template <typename T>
struct Tensor {
  Buffer<T> input;
  Buffer<T> separate_output;  // empty: the result is in the input or is returned
  std::int64_t first;         // its index in the sequence
  hvd::Options call;          // with a fixed name, like a gradient

  std::span<T> output() { return separate_output.values().empty() ? input.values() : separate_output.values(); }
};

// The tensors of one row and the operations on them, as in a user's program. Called from one thread; owns the tensors.
class Workload {
 public:
  Workload() = default;
  virtual ~Workload() = default;
  Workload(const Workload&) = delete;
  Workload& operator=(const Workload&) = delete;

  // The maximum number of calls of run() after one rewrite().
  virtual int max_calls() const = 0;

  // Writes new inputs, different in each round, and outputs that no collective can have produced.
  virtual void rewrite(int round) = 0;
  // Submits all operations and waits for them.
  virtual void run() = 0;
  // Counts the elements of this rank's results that differ from those of `calls` calls of run() after rewrite(round).
  virtual std::int64_t count_errors(int round, int calls) = 0;
};

class Barrier : public Workload {
 public:
  int max_calls() const override { return kMaxCalls; }
  void rewrite(int) override {}
  void run() override { barrier(call_); }
  std::int64_t count_errors(int, int) override { return 0; }

 private:
  const hvd::Options call_{.name = "bench"};
};

template <typename T>
class TensorWorkload : public Workload {
 public:
  TensorWorkload(const Settings& settings, const TensorSet& row)
      : settings_(settings), ranks_(size()), rank_(hvd::rank()) {
    const bool has_output = settings.collective == Collective::allreduce && !settings.in_place;
    std::int64_t first = 0;
    for (const std::int64_t elements : row) {
      const std::int64_t input = settings.collective == Collective::allgather ? elements / ranks_ : elements;
      tensors_.push_back({.input = {input, settings.arena},
                          .separate_output = {has_output ? elements : 0, settings.arena},
                          .first = first,
                          .call = {.name = "bench." + std::to_string(tensors_.size())}});
      if (settings.grouped) group_.push_back(tensors_.back().input.values());
      first += input;
    }
  }

  int max_calls() const override { return bench::max_calls<T>(settings_.op, ranks_, settings_.in_place); }

  void rewrite(int round) override {
    const Reference<T> reference(settings_.op, ranks_, round);
    const bool gives = settings_.collective != Collective::broadcast || rank_ == kRoot;
    const Pattern<T> stale = Reference<T>::stale();
    const Pattern<T> inputs = gives ? reference.contribution(rank_) : stale;
    for (Tensor<T>& tensor : tensors_) {
      inputs.write(tensor.input.values(), tensor.first);
      stale.write(tensor.separate_output.values(), tensor.first);
    }
  }

  void run() override {
    if (tensors_.size() == 1 && !settings_.grouped) {
      returned_ = perform(tensors_.front());
      return;
    }
    pending_.clear();
    if (settings_.grouped) {
      pending_.push_back(grouped_allreduce_async(group_, *settings_.op, tensors_.front().call));
    } else {
      for (Tensor<T>& tensor : tensors_) pending_.push_back(submit(tensor));
    }
    for (const Pending& operation : pending_) std::visit([](const auto& future) { future.wait(); }, operation);
  }

  std::int64_t count_errors(int round, int calls) override {
    const std::vector<Pattern<T>> parts = expected(round, settings_.in_place ? calls : 1);
    if (pending_.empty()) {
      Tensor<T>& tensor = tensors_.front();
      return errors_in(returned_ ? std::span<const T>(*returned_) : tensor.output(), tensor, parts);
    }
    std::int64_t errors = 0;
    for (std::size_t i = 0; i < tensors_.size(); ++i) {
      const auto count = [&](auto& future) { return errors_in(result(tensors_[i], future), tensors_[i], parts); };
      errors += std::visit(count, pending_[settings_.grouped ? 0 : i]);
    }
    return errors;
  }

 private:
  using Pending = std::variant<Future<void>, Future<std::vector<T>>, Future<Received<T>>>;

  Pending submit(Tensor<T>& tensor) {
    const std::span<T> input = tensor.input.values();
    switch (settings_.collective) {
      case Collective::allgather: return allgather_async(input, tensor.call);
      case Collective::broadcast: return broadcast_async(input, kRoot, tensor.call);
      case Collective::reducescatter: return reducescatter_async(input, *settings_.op, tensor.call);
      case Collective::alltoall: return alltoall_async(input, {}, tensor.call);
      default: break;
    }
    if (settings_.in_place) return allreduce_async(input, *settings_.op, tensor.call);
    return allreduce_async(input, tensor.separate_output.values(), *settings_.op, tensor.call);
  }

  // Returns the result unless it is written to an output.
  std::optional<std::vector<T>> perform(Tensor<T>& tensor) {
    const std::span<T> input = tensor.input.values();
    switch (settings_.collective) {
      case Collective::allgather: return allgather(input, tensor.call);
      case Collective::reducescatter: return reducescatter(input, *settings_.op, tensor.call);
      case Collective::alltoall: return alltoall(input, {}, tensor.call).values;
      case Collective::broadcast: broadcast(input, kRoot, tensor.call); return std::nullopt;
      default: break;
    }
    if (settings_.in_place) {
      allreduce(input, *settings_.op, tensor.call);
    } else {
      allreduce(input, tensor.separate_output.values(), *settings_.op, tensor.call);
    }
    return std::nullopt;
  }

  static std::span<const T> result(Tensor<T>& tensor, Future<void>&) { return tensor.output(); }
  static std::vector<T> result(Tensor<T>&, Future<std::vector<T>>& future) { return future.get(); }
  static std::vector<T> result(Tensor<T>&, Future<Received<T>>& future) { return future.get().values; }

  // The expected values of the equal parts of a result, of which there may be one.
  std::vector<Pattern<T>> expected(int round, int calls) const {
    const Reference<T> reference(settings_.op, ranks_, round);
    if (settings_.op) return {reference.reduced(calls)};
    if (settings_.collective == Collective::broadcast) return {reference.contribution(kRoot)};
    std::vector<Pattern<T>> parts;
    for (int rank = 0; rank < ranks_; ++rank) parts.push_back(reference.contribution(rank));
    return parts;
  }

  std::int64_t errors_in(std::span<const T> result, Tensor<T>& tensor, const std::vector<Pattern<T>>& parts) const {
    const std::int64_t elements = result_elements(tensor);
    if (static_cast<std::int64_t>(result.size()) != elements) return elements;
    const std::size_t length = result.size() / parts.size();
    // reducescatter and alltoall give each rank a different part of the inputs.
    const bool scatters =
        settings_.collective == Collective::reducescatter || settings_.collective == Collective::alltoall;
    const std::int64_t first = tensor.first + (scatters ? rank_ * static_cast<std::int64_t>(length) : 0);
    std::int64_t errors = 0;
    for (std::size_t part = 0; part < parts.size(); ++part) {
      errors += parts[part].count_errors(result.subspan(part * length, length), first);
    }
    return errors;
  }

  std::int64_t result_elements(Tensor<T>& tensor) const {
    const auto input = static_cast<std::int64_t>(tensor.input.values().size());
    if (settings_.collective == Collective::allgather) return input * ranks_;
    return settings_.collective == Collective::reducescatter ? input / ranks_ : input;
  }

  const Settings& settings_;
  const int ranks_;
  const int rank_;
  std::vector<Tensor<T>> tensors_;
  std::vector<std::span<T>> group_;  // all inputs, if they are one grouped operation
  // Of the last run: futures of several tensors, or the result of one, returned by a synchronous call.
  std::vector<Pending> pending_;
  std::optional<std::vector<T>> returned_;
};

// `row` must be divisible by the number of ranks if the collective requires it. Needs an initialised runtime.
std::unique_ptr<Workload> make_workload(const Settings& settings, const TensorSet& row) {
  if (settings.collective == Collective::barrier) return std::make_unique<Barrier>();
  return with_type(settings.dtype, [&]<typename T>(std::type_identity<T>) -> std::unique_ptr<Workload> {
    return std::make_unique<TensorWorkload<T>>(settings, row);
  });
}

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

std::string counted(int number, const char* noun) {
  return std::to_string(number) + " " + noun + (number == 1 ? "" : "s");
}

// A barrier has neither type nor reduction.
const char* dtype_text(const Settings& settings) {
  return settings.collective == Collective::barrier ? "none" : text_of(kDTypes, settings.dtype);
}
const char* op_text(const Settings& settings) { return settings.op ? text_of(kReduceOps, *settings.op) : "none"; }

template <typename... Values>
std::string print(const char* format, Values... values) {
  std::array<char, 256> line{};
  std::snprintf(line.data(), line.size(), format, values...);
  return line.data();
}

std::string settings_line(const Settings& settings) {
  std::string line = "# ";
  if (settings.collective != Collective::barrier) {
    line += settings.arena ? "tensors in the shared arena, " : "tensors in ordinary memory, ";
  }
  if (settings.collective == Collective::allreduce) line += settings.in_place ? "in place, " : "out of place, ";
  if (settings.grouped) line += "one group, ";
  return line + print("%g s a row after %d rounds of warm-up; a time is the slowest rank's\n", settings.seconds,
                      settings.warmup);
}

}  // namespace

double quantile(std::vector<double> values, double share) {
  const double place = std::ceil(share * static_cast<double>(values.size())) - 1;
  const auto at = values.begin() + static_cast<std::ptrdiff_t>(std::max(place, 0.0));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

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

std::string heading(const Settings& settings, const Job& job) {
  std::string text = "# hvd " + job.version + " " + text_of(kCollectives, settings.collective) + ", " +
                     counted(job.ranks, "rank") + " on " + counted(job.hosts, "host") + "\n" + settings_line(settings);
  if (job.ranks == 1) text += "# one rank has nobody to talk to: hvd bench -np 4 starts several\n";
  return text + print("#%12s %8s %9s %8s %12s %12s %12s %10s %10s %8s\n", "bytes", "tensors", "dtype", "op", "min us",
                      "median us", "p99 us", "algbw GB/s", "busbw GB/s", "errors");
}

std::string table_row(const Settings& settings, const Measured& row) {
  return print("%13lld %8lld %9s %8s %12.2f %12.2f %12.2f %10.3f %10.3f %8lld%s\n", static_cast<long long>(row.bytes),
               static_cast<long long>(row.tensors), dtype_text(settings), op_text(settings), row.min_us, row.median_us,
               row.p99_us, row.algbw, row.busbw, static_cast<long long>(row.errors), row.errors > 0 ? " WRONG" : "");
}

std::string json_text(const Settings& settings, const Job& job, const std::vector<Measured>& rows) {
  nlohmann::json results = nlohmann::json::array();
  for (const Measured& row : rows) {
    results.push_back({{"bytes", row.bytes},
                       {"tensors", row.tensors},
                       {"calls", row.calls},
                       {"rounds", row.rounds},
                       {"min_us", row.min_us},
                       {"median_us", row.median_us},
                       {"p99_us", row.p99_us},
                       {"algbw_gb_per_s", row.algbw},
                       {"busbw_gb_per_s", row.busbw},
                       {"errors", row.errors}});
  }
  const nlohmann::json report = {{"program", "hvd bench"},
                                 {"version", job.version},
                                 {"ranks", job.ranks},
                                 {"hosts", job.hosts},
                                 {"collective", text_of(kCollectives, settings.collective)},
                                 {"dtype", dtype_text(settings)},
                                 {"op", op_text(settings)},
                                 {"in_place", settings.in_place},
                                 {"grouped", settings.grouped},
                                 {"arena", settings.arena},
                                 {"seconds", settings.seconds},
                                 {"warmup", settings.warmup},
                                 {"results", results}};
  return report.dump(1) + '\n';
}

}  // namespace hvd::bench
