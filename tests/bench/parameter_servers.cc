// Calls to parameter servers from C++: a program like its users' own, under hvdrun. parameter_servers.py launches it
// beside other ways to do the same.
//
//   hvdrun -np 2 --servers 1 bench_parameter_servers --rows 64 --width 256 --window 1
//
// Each rank pulls, pushes (SGD), and does both, rows of random keys. A round is so many calls of a kind in a row, of
// which `window` are in progress at a time, after a barrier; its time is the slowest rank's. Rank 0 prints a line of
// JSON: by kind the rounds' microseconds for a call. What the last pull brought is checked against what was pushed.
//
// With --allreduce BYTES it is allreduces that are timed: alone, while a second thread of each rank counts ("busy"),
// and while it calls the servers ("calls"). Such a thread and its server wait for each other, so that both loads want
// as much of the CPUs.
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <random>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <hvd.hpp>
#include <nlohmann/json.hpp>

#include "hvd_ps.h"

namespace {

struct Options {
  std::size_t rows = 64;
  std::size_t width = 256;
  std::size_t table_rows = 100'000;
  std::size_t window = 1;
  std::size_t allreduce = 0;
  int idle = 0;
  int calls = 500;
  int rounds = 10;
  bool pin = false;
};

void check(hvd_status status) {
  if (status != HVD_OK) throw std::runtime_error(hvd_last_error());
}

void pin_to_cpu(int number) {
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) throw std::runtime_error("sched_getaffinity");
  int left = number % CPU_COUNT(&allowed);
  std::size_t cpu = 0;
  while (!CPU_ISSET(cpu, &allowed) || left-- > 0) ++cpu;
  CPU_ZERO(&allowed);
  CPU_SET(cpu, &allowed);
  if (sched_setaffinity(0, sizeof allowed, &allowed) != 0) throw std::runtime_error("sched_setaffinity");
}

int number_in(const char* variable) { return std::atoi(std::getenv(variable)); }  // that hvdrun has set
bool is_server() { return std::getenv("HVD_SERVER") != nullptr; }

// The seconds of the slowest rank.
template <typename Body>
double slowest(const Body& body) {
  hvd::barrier();
  const auto start = std::chrono::steady_clock::now();
  body();
  const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
  double seconds = taken.count();
  hvd::allreduce(std::span(&seconds, 1), hvd::max);
  return seconds;
}

constexpr std::size_t kBatches = 64;  // of keys, in turn

// The calls of a rank. Each in progress has rows and gradients of its own.
class Caller {
 public:
  explicit Caller(const Options& options)
      : options_(options),
        keys_(kBatches * options.rows),
        rows_(options.window, std::vector<float>(options.rows * options.width)),
        gradients_(options.rows * options.width, 0.25F),
        under_way_(options.window),
        calls_(hvd::rank() >= options.idle) {
    check(hvd_ps_connect(&ps_));
    hvd_ps_table table = HVD_PS_TABLE_INIT;
    table.name = "bench";
    table.width = static_cast<std::int32_t>(options.width);
    hvd_ps_optimizer optimizer = HVD_PS_OPTIMIZER_INIT;
    optimizer.learning_rate = 0.5F;
    table.optimizer = &optimizer;
    check(hvd_ps_open(ps_, &table, &table_));
    if (options.pin) pin_to_cpu(hvd::rank());  // not before: with one CPU it would yield, not spin
    fill_keys();
    if (calls_) create_rows();
  }

  // The seconds of so many calls.
  template <typename Call>
  double round(const Call& call) {
    return slowest([&] {
      for (int i = 0; i < options_.calls && calls_; ++i) call(static_cast<std::size_t>(i));
      for (hvd_ps_work*& work : under_way_) finish(work);
    });
  }

  void pull(std::size_t i) {
    check(hvd_ps_pull(ps_, table_, keys(i), options_.rows, rows_[i % options_.window].data(), work(i)));
  }
  void push(std::size_t i) { check(hvd_ps_push(ps_, table_, keys(i), options_.rows, gradients_.data(), work(i))); }
  void push_pull(std::size_t i) {
    check(hvd_ps_push_pull(ps_, table_, keys(i), options_.rows, gradients_.data(), rows_[i % options_.window].data(),
                           work(i)));
  }

  // Of the table's first key: each push of a key takes rate * gradient away from all its values, which begin with 0.
  void check_rows() {
    if (!calls_) return;
    std::vector<float>& rows = rows_[0];
    check(hvd_ps_pull(ps_, table_, keys(0), options_.rows, rows.data(), nullptr));
    const bool was_pushed = rows[0] < 0 && std::fmod(rows[0], 0.125F) == 0;
    if (!was_pushed || rows[options_.width - 1] != rows[0]) throw std::runtime_error("the rows are wrong");
  }

  void close() { check(hvd_ps_close(ps_)); }

 private:
  const std::uint64_t* keys(std::size_t i) const { return keys_.data() + i % kBatches * options_.rows; }

  // Null, with a window of one: the call returns when it is done.
  hvd_ps_work** work(std::size_t i) {
    if (options_.window == 1) return nullptr;
    hvd_ps_work*& place = under_way_[i % options_.window];
    finish(place);
    return &place;
  }

  static void finish(hvd_ps_work*& work) {
    if (work == nullptr) return;
    check(hvd_ps_work_wait(work, -1));
    hvd_ps_work_free(std::exchange(work, nullptr));
  }

  void fill_keys() {
    std::mt19937_64 random(static_cast<unsigned>(hvd::rank()));
    for (std::uint64_t& key : keys_) key = random() % options_.table_rows;
  }

  void create_rows() {
    const std::vector<float> zeros(options_.rows * options_.width);
    std::vector<std::uint64_t> some(options_.rows);
    for (std::size_t first = 0; first < options_.table_rows; first += options_.rows) {
      for (std::size_t i = 0; i < some.size(); ++i) some[i] = (first + i) % options_.table_rows;
      check(hvd_ps_push(ps_, table_, some.data(), some.size(), zeros.data(), nullptr));
    }
  }

  const Options& options_;
  hvd_ps* ps_ = nullptr;
  std::int32_t table_ = 0;
  std::vector<std::uint64_t> keys_;
  std::vector<std::vector<float>> rows_;
  const std::vector<float> gradients_;
  std::vector<hvd_ps_work*> under_way_;
  const bool calls_;
};

using Times = std::map<std::string, std::vector<double>>;

Times measure_calls(const Options& options, Caller& caller) {
  Times times;
  for (int number = 0; number <= options.rounds; ++number) {
    const std::map<std::string, double> seconds{
        {"pull", caller.round([&](std::size_t i) { caller.pull(i); })},
        {"push", caller.round([&](std::size_t i) { caller.push(i); })},
        {"push_pull", caller.round([&](std::size_t i) { caller.push_pull(i); })}};
    if (number == 0) continue;  // it warms up
    for (const auto& [kind, taken] : seconds) times[kind].push_back(taken / options.calls * 1e6);
  }
  caller.check_rows();
  return times;
}

// Repeats something in a thread of its own.
class Load {
 public:
  template <typename Body>
  explicit Load(const Body& body)
      : thread_([this, &body] {
          while (!stops_) body(done_++);
        }) {}
  ~Load() {
    stops_ = true;
    thread_.join();
  }
  Load(const Load&) = delete;
  Load& operator=(const Load&) = delete;

  double microseconds_each() const {
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start_;
    return taken.count() * 1e6 / static_cast<double>(std::max<std::size_t>(done_, 1));
  }

 private:
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::atomic<bool> stops_{false};
  std::atomic<std::size_t> done_{0};
  std::thread thread_;
};

Times measure_allreduces(const Options& options, Caller& caller) {
  std::vector<float> values(options.allreduce / sizeof(float));
  const auto allreduce = [&] {
    std::ranges::fill(values, 1.0F);
    return slowest([&] { hvd::allreduce(values); }) * 1e6;
  };
  const auto count = [](std::size_t) {
    for (int n = 0; n < 10'000; ++n) asm volatile("");
  };
  const auto call = [&](std::size_t i) { caller.push_pull(i); };
  Times times;
  for (int number = 0; number <= options.rounds; ++number) {
    const auto add = [&](const char* kind) {
      const double taken = allreduce();
      if (number > 0) times[kind].push_back(taken);
    };
    add("alone");
    {
      const Load busy(count);
      add("busy");
    }
    const Load calls(call);
    add("calls");
    if (number > 0) times["call"].push_back(calls.microseconds_each());
  }
  if (values[0] != static_cast<float>(hvd::size())) throw std::runtime_error("the sum is wrong");
  return times;
}

void measure(const Options& options) {
  const hvd::Session session;
  Caller caller(options);
  const Times times = options.allreduce > 0 ? measure_allreduces(options, caller) : measure_calls(options, caller);
  if (hvd::rank() == 0) std::printf("%s\n", nlohmann::json(times).dump().c_str());
  caller.close();
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("pulls and pushes from C++, under hvdrun --servers");
  app.add_option("--rows", options.rows, "in a call")->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--width", options.width, "floats in a row")->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--table-rows", options.table_rows)->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--window", options.window, "calls in progress")->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--calls", options.calls, "in a round")->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--rounds", options.rounds)->capture_default_str()->check(CLI::PositiveNumber);
  app.add_option("--idle", options.idle, "ranks that make no calls, from the first")->capture_default_str();
  app.add_option("--allreduce", options.allreduce, "bytes; 0: calls are timed")->capture_default_str();
  app.add_flag("--pin", options.pin, "each rank and server on a CPU of its own");
  CLI11_PARSE(app, argc, argv);
  try {
    if (is_server()) {
      if (options.pin) pin_to_cpu(number_in("HVD_SIZE") + number_in("HVD_SERVER"));
      check(hvd_ps_serve());
    } else {
      measure(options);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_parameter_servers: %s\n", error.what());
    return EXIT_FAILURE;
  }
  return EXIT_SUCCESS;
}
