#include "tools/bench/measurement.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <hvd.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <span>
#include <variant>

#include "tools/bench/reference.h"

namespace hvd::bench {

namespace {

constexpr int kRoot = 0;

void check(hvd_status status) {
  if (status != HVD_OK) throw Error(status, hvd_last_error());
}

struct EndOfWork {
  // Waits, since the memory of the tensors may be freed next.
  void operator()(hvd_work* work) const {
    hvd_work_wait(work, -1);
    hvd_work_free(work);
  }
};
using Work = std::unique_ptr<hvd_work, EndOfWork>;

// Memory of a tensor, of the kind that the user requested.
class Buffer {
 public:
  Buffer(std::size_t size, bool arena) {
    if (arena) {
      memory_ = std::vector<std::byte, allocator<std::byte>>(size);
    } else {
      memory_ = std::vector<std::byte>(size);
    }
  }
  std::span<std::byte> bytes() {
    return std::visit([](auto& memory) { return std::span<std::byte>(memory); }, memory_);
  }

 private:
  std::variant<std::vector<std::byte>, std::vector<std::byte, allocator<std::byte>>> memory_;
};

// All tensors are consecutive parts of one long sequence of elements, whose values the patterns define.
struct Tensor {
  Buffer input;
  Buffer separate_output;  // empty: the result is in the input, or belongs to the work
  std::int64_t elements;   // of the input
  std::int64_t first;      // its index in the sequence
  std::string name;        // fixed, like a gradient's
};

template <typename T>
std::span<T> elements_in(std::span<std::byte> bytes) {
  return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
}

// The tensors of one row and the operations on them, as in a user's program: calls of the C interface, which has one
// function for all element types. Called from one thread; owns the tensors. A barrier has no tensors.
class Workload {
 public:
  // `row` must be divisible by the number of ranks if the collective requires it. Needs an initialised runtime.
  Workload(const Settings& settings, const TensorSet& row) : settings_(settings), ranks_(size()), rank_(hvd::rank()) {
    const bool has_output = settings.collective == HVD_ALLREDUCE && !settings.in_place;
    const std::size_t element = size_of(settings.dtype);
    std::int64_t first = 0;
    for (const std::int64_t elements : row) {
      const std::int64_t input = settings.collective == HVD_ALLGATHER ? elements / ranks_ : elements;
      const auto bytes = static_cast<std::size_t>(input) * element;
      tensors_.push_back({.input = {bytes, settings.arena},
                          .separate_output = {has_output ? bytes : 0, settings.arena},
                          .elements = input,
                          .first = first,
                          .name = "bench." + std::to_string(tensors_.size())});
      first += input;
    }
    make_calls();
  }

  // The maximum number of calls of run() after one rewrite().
  int max_calls() const {
    return with_type(settings_.dtype, [&]<typename T>(std::type_identity<T>) {
      return bench::max_calls<T>(settings_.op, ranks_, settings_.in_place);
    });
  }

  // Writes new inputs, different in each round, and outputs that no collective can have produced.
  void rewrite(int round) {
    with_type(settings_.dtype, [&]<typename T>(std::type_identity<T>) {
      const Reference<T> reference(settings_.op, ranks_, round);
      const bool gives = settings_.collective != HVD_BROADCAST || rank_ == kRoot;
      const Pattern<T> stale = Reference<T>::stale();
      const Pattern<T> inputs = gives ? reference.contribution(rank_) : stale;
      for (Tensor& tensor : tensors_) {
        inputs.write(elements_in<T>(tensor.input.bytes()), tensor.first);
        stale.write(elements_in<T>(tensor.separate_output.bytes()), tensor.first);
      }
    });
  }

  // Submits all operations and waits for them.
  void run() {
    works_.clear();
    hvd_work* work = nullptr;
    if (calls_.size() == 1 && !settings_.grouped) {
      const hvd_status status = hvd_run(calls_.data(), -1, has_outputs() ? nullptr : &work);
      works_.emplace_back(work);
      check(status);
      return;
    }
    for (const hvd_call& call : calls_) {
      check(hvd_submit(&call, &work));
      works_.emplace_back(work);
    }
    for (const Work& pending : works_) check(hvd_work_wait(pending.get(), -1));
  }

  // Counts the elements of this rank's results that differ from those of `calls` calls of run() after rewrite(round).
  std::int64_t count_errors(int round, int calls) {
    return with_type(settings_.dtype, [&]<typename T>(std::type_identity<T>) {
      const std::vector<Pattern<T>> parts = expected<T>(round, settings_.in_place ? calls : 1);
      std::int64_t errors = 0;
      for (std::size_t i = 0; i < tensors_.size(); ++i) errors += errors_in<T>(result(i), tensors_[i], parts);
      return errors;
    });
  }

 private:
  // Whether the results are where the calls say, and not in memory of the works.
  bool has_outputs() const {
    return settings_.collective == HVD_ALLREDUCE || settings_.collective == HVD_BROADCAST ||
           settings_.collective == HVD_BARRIER;
  }

  void make_calls() {
    const auto described = [&](Tensor& tensor, Buffer& buffer) {
      return hvd_tensor{buffer.bytes().data(), &tensor.elements, 1, settings_.dtype, HVD_CPU, 0};
    };
    for (Tensor& tensor : tensors_) {
      inputs_.push_back(described(tensor, tensor.input));
      const bool separate = !tensor.separate_output.bytes().empty();
      outputs_.push_back(described(tensor, separate ? tensor.separate_output : tensor.input));
    }
    hvd_call call = HVD_CALL_INIT;
    call.collective = settings_.collective;
    call.root_rank = kRoot;
    if (settings_.op) call.reduce_op = static_cast<std::int32_t>(*settings_.op);
    call.name = tensors_.empty() ? "bench" : tensors_.front().name.c_str();
    call.count = settings_.grouped ? tensors_.size() : std::min<std::size_t>(tensors_.size(), 1);
    call.inputs = inputs_.data();
    call.outputs = has_outputs() ? outputs_.data() : nullptr;
    calls_.push_back(call);
    for (std::size_t i = 1; i < tensors_.size() && !settings_.grouped; ++i) {
      call.name = tensors_[i].name.c_str();
      call.inputs = &inputs_[i];
      if (has_outputs()) call.outputs = &outputs_[i];
      calls_.push_back(call);
    }
  }

  std::span<std::byte> result(std::size_t i) {
    hvd_tensor output{};
    if (has_outputs()) {
      output = outputs_[i];
    } else {
      check(hvd_work_output(works_[i].get(), 0, &output));
    }
    return {static_cast<std::byte*>(output.data), static_cast<std::size_t>(*output.shape) * size_of(settings_.dtype)};
  }

  // The expected values of the equal parts of a result, of which there may be one.
  template <typename T>
  std::vector<Pattern<T>> expected(int round, int calls) const {
    const Reference<T> reference(settings_.op, ranks_, round);
    if (settings_.op) return {reference.reduced(calls)};
    if (settings_.collective == HVD_BROADCAST) return {reference.contribution(kRoot)};
    std::vector<Pattern<T>> parts;
    for (int rank = 0; rank < ranks_; ++rank) parts.push_back(reference.contribution(rank));
    return parts;
  }

  template <typename T>
  std::int64_t errors_in(std::span<std::byte> bytes, const Tensor& tensor, const std::vector<Pattern<T>>& parts) const {
    const std::span<const T> result = elements_in<T>(bytes);
    const std::int64_t elements = result_elements(tensor);
    if (static_cast<std::int64_t>(result.size()) != elements) return elements;
    const std::size_t length = result.size() / parts.size();
    // reducescatter and alltoall give each rank a different part of the inputs.
    const bool scatters = settings_.collective == HVD_REDUCESCATTER || settings_.collective == HVD_ALLTOALL;
    const std::int64_t first = tensor.first + (scatters ? rank_ * static_cast<std::int64_t>(length) : 0);
    std::int64_t errors = 0;
    for (std::size_t part = 0; part < parts.size(); ++part) {
      errors += parts[part].count_errors(result.subspan(part * length, length), first);
    }
    return errors;
  }

  std::int64_t result_elements(const Tensor& tensor) const {
    if (settings_.collective == HVD_ALLGATHER) return tensor.elements * ranks_;
    return settings_.collective == HVD_REDUCESCATTER ? tensor.elements / ranks_ : tensor.elements;
  }

  const Settings& settings_;
  const int ranks_;
  const int rank_;
  std::vector<Tensor> tensors_;
  std::vector<hvd_tensor> inputs_, outputs_;  // of the tensors
  std::vector<hvd_call> calls_;               // one for each tensor, or for all, if they are one grouped operation
  std::vector<Work> works_;                   // of the last run
};

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
  return settings.collective == HVD_BARRIER ? "none" : text_of(kDTypes, settings.dtype);
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
  if (settings.collective != HVD_BARRIER) {
    line += settings.arena ? "tensors in the shared arena, " : "tensors in ordinary memory, ";
  }
  if (settings.collective == HVD_ALLREDUCE) line += settings.in_place ? "in place, " : "out of place, ";
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
  Workload workload(settings, row);
  Rounds rounds(workload);
  Measured result{.bytes = total_elements(row) * static_cast<std::int64_t>(size_of(settings.dtype)),
                  .tensors = static_cast<std::int64_t>(row.size())};
  result.calls = choose_calls(rounds, workload.max_calls());
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
