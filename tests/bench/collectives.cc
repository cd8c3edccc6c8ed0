// How long hvd's collectives take: the data plane, called directly by ranks that are processes.
//
//   bench_collectives                                              a short table
//   bench_collectives --ranks 4 --collective allgather --sizes 64K,4M --json FILE
//   bench_collectives --hosts 4 --host 1 --ranks-per-host 2 --store FILE ...   once on each host; host 0 with --address
//   bench_collectives --calls --sizes 8,64                         what a program's calls of a small allreduce cost:
//   the
//                                                                  plain one and a prepared one, and the data plane
//                                                                  alone
//   bench_collectives --collective copy                            what the machine can do: no rank needs another
//
// Every size is warmed up and then timed in rounds. Before a round each rank rewrites its buffers, after it each rank
// checks its results, outside of the time and when all have done: checks take CPUs from those who work. Up to 64 KB a
// round times many calls in a row, above one call behind a barrier. The time is that from rank 0's start to its end,
// per call; a broadcast comes from the last rank. Times depend on what else runs: compare only within a run. HVD_*
// settings count as in a job.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

#include "core/base/error.h"
#include "tests/bench/calls.h"
#include "tests/bench/job.h"
#include "tests/bench/workload.h"

namespace {

using namespace hvd;
using namespace hvd::bench;

constexpr const char* kCopy = "copy";
constexpr std::size_t kSmallBytes = 64 << 10;  // and below: many calls a round
constexpr double kRoundSeconds = 0.05;         // at most, with many calls
constexpr int kMinRounds = 5;
constexpr int kMaxRounds = 2000;

struct Options {
  JobOptions job;
  std::string collective = "allreduce";
  std::vector<std::uint64_t> sizes;
  int tensors = 1;
  bool in_place = false;
  bool arena = false;
  double seconds = 0.5;  // for each size
  bool calls = false;
  std::string json;
};

struct Plan {
  int calls = 1;  // in a round
  int rounds = kMinRounds;
};

// Copies each tensor to where its result belongs: the allreduce of a rank that is alone.
class Copy : public Backend {
 public:
  const char* name() const override { return "memcpy"; }
  int score(const CollectiveCall&) const override { return 1; }
  void run(const CollectiveCall& call) override {
    for (const Piece& piece : call.pieces) {
      std::memcpy(piece.output, piece.input, static_cast<std::size_t>(piece.elements) * size_of(call.dtype));
    }
  }
};

// One size on one rank.
class Measurement {
 public:
  Measurement(Member& member, Workload& workload, Backend& backend)
      : member_(member), workload_(workload), backend_(backend) {}

  // Warms up. All ranks get rank 0's plan.
  Plan plan(std::size_t bytes, double budget) {
    round(0, 1);
    const double call = round(1, 1);
    const double many = bytes <= kSmallBytes ? std::clamp<double>(kRoundSeconds / call, 1, workload_.exact_calls()) : 1;
    const int calls = static_cast<int>(member_.agree(std::lround(many)));
    const TimePoint start = Clock::now();
    round(2, calls);
    const double rounds = std::clamp<double>(budget / seconds(Clock::now() - start), kMinRounds, kMaxRounds);
    return {.calls = calls, .rounds = static_cast<int>(member_.agree(std::lround(rounds)))};
  }

  // Seconds per call, by round, sorted.
  std::vector<double> times(const Plan& plan) {
    std::vector<double> times;
    for (int i = 0; i < plan.rounds; ++i) times.push_back(round(i, plan.calls));
    std::sort(times.begin(), times.end());
    return times;
  }

 private:
  double round(int number, int calls) {
    workload_.rewrite(number);
    member_.barrier();
    const TimePoint start = Clock::now();
    for (int call = 0; call < calls; ++call) member_.run(backend_, workload_.call());
    const double time = seconds(Clock::now() - start) / calls;
    member_.barrier();
    workload_.check(number, calls);
    return time;
  }

  Member& member_;
  Workload& workload_;
  Backend& backend_;
};

Collective parse_collective(const std::string& name) {
  for (int value = 0; const auto collective = collective_from(value); ++value) {
    if (name == collective_name(*collective)) return *collective;
  }
  throw InvalidArgument("there is no collective " + name);
}

nlohmann::json measure(Member& member, const Options& options, std::size_t bytes) {
  const bool copy = options.collective == kCopy;
  const WorkloadOptions work{.collective = copy ? Collective::allreduce : parse_collective(options.collective),
                             .bytes = bytes,
                             .tensors = options.tensors,
                             .in_place = options.in_place,
                             .arena = options.arena ? member.arena() : nullptr};
  const ProcessSet alone{.ranks = {0}};
  Workload workload(work, copy ? 0 : member.rank(), copy ? alone : member.everyone());
  Copy copying;
  Backend& backend = copy ? copying : member.backend_for(workload.call());
  Measurement measurement(member, workload, backend);
  const Plan plan = measurement.plan(bytes, options.seconds);
  const std::vector<double> times = measurement.times(plan);
  const auto at = [&times](double share) {
    return times[static_cast<std::size_t>(share * static_cast<double>(times.size() - 1))] * 1e6;
  };
  return {{"collective", options.collective},
          {"bytes", bytes},
          {"tensors", options.tensors},
          {"in_place", options.in_place},
          {"arena", options.arena},
          {"backend", backend.name()},
          {"rounds", plan.rounds},
          {"calls", plan.calls},
          {"min_us", at(0)},
          {"median_us", at(0.5)},
          {"p99_us", at(0.99)}};
}

// By turns, in short rounds: the data plane alone, and each way to call it in a job of its own beside it.
void measure_calls(Member& member, const Options& options, std::size_t bytes) {
  constexpr int kCalls = 2000;
  Workload workload({.bytes = bytes, .in_place = true}, member.rank(), member.everyone());
  Backend& backend = member.backend_for(workload.call());
  Calls calls(bytes);
  std::vector<Way> ways = calls.ways();
  ways.insert(ways.begin(), {"the data plane", [&] { member.run(backend, workload.call()); }});
  std::vector<std::vector<double>> times(ways.size());
  const TimePoint started = Clock::now();
  for (bool more = true; more;) {
    for (std::size_t i = 0; i < ways.size(); ++i) {
      member.barrier();
      for (int call = 0; call < kCalls / 4; ++call) ways[i].call();  // a schedule is locked again
      const TimePoint start = Clock::now();
      for (int call = 0; call < kCalls; ++call) ways[i].call();
      times[i].push_back(seconds(Clock::now() - start) / kCalls * 1e9);
    }
    more = member.agree(seconds(Clock::now() - started) < options.seconds ? 1 : 0) != 0;
  }
  if (member.rank() != 0) return;
  for (std::size_t i = 0; i < ways.size(); ++i) {
    std::sort(times[i].begin(), times[i].end());
    std::printf("%-16s %2d ranks %6zu bytes  min %8.0f ns  median %8.0f ns\n", ways[i].name.c_str(), member.size(),
                bytes, times[i].front(), times[i][times[i].size() / 2]);
  }
  std::fflush(stdout);
}

void print(const Member& member, const nlohmann::json& result) {
  std::printf("%-13s %2d ranks %10zu bytes in %3d tensors %-13s min %10.2f us  median %10.2f us  p99 %10.2f us\n",
              result["collective"].get<std::string>().c_str(), member.size(), result["bytes"].get<std::size_t>(),
              result["tensors"].get<int>(), result["backend"].get<std::string>().c_str(),
              result["min_us"].get<double>(), result["median_us"].get<double>(), result["p99_us"].get<double>());
  std::fflush(stdout);
}

void run_sizes(Member& member, const Options& options) {
  if (options.arena && member.arena() == nullptr) throw InvalidArgument("these ranks share no memory: no arena");
  nlohmann::json results = nlohmann::json::array();
  if (options.calls) {
    for (const std::uint64_t bytes : options.sizes) measure_calls(member, options, bytes);
    return;
  }
  for (const std::uint64_t bytes : options.sizes) {
    results.push_back(measure(member, options, bytes));
    if (member.rank() == 0) print(member, results.back());
  }
  if (member.rank() != 0 || options.json.empty()) return;
  std::ofstream file(options.json);
  file << nlohmann::json{{"program", "hvd"},
                         {"ranks", member.size()},
                         {"hosts", member.hosts()},
                         {"pinned", options.job.pin},
                         {"results", results}}
              .dump(1)
       << '\n';
  if (!file.flush()) throw InvalidArgument("cannot write " + options.json);
}

bool run(const Options& options) {
  return run_job(options.job, [&options](Member& member) { run_sizes(member, options); });
}

bool print_table(const Options& base) {
  constexpr std::uint64_t K = 1 << 10;
  constexpr std::uint64_t M = 1 << 20;
  bool well = true;
  const auto add = [&](int ranks, const char* collective, std::vector<std::uint64_t> sizes, int tensors = 1,
                       bool arena = false) {
    Options options = base;
    options.job.ranks_per_host = ranks;
    options.collective = collective;
    options.sizes = std::move(sizes);
    options.tensors = tensors;
    options.arena = options.in_place = arena;
    well = run(options) && well;
  };
  add(2, "allreduce", {8, 4 * K, 64 * K, 1 * M, 16 * M, 64 * M});
  add(2, "allreduce", {64 * M}, 100);
  add(2, kCopy, {4 * M, 64 * M});
  add(2, "allreduce", {1 * M, 64 * M}, 1, true);
  add(4, "allreduce", {8, 64 * K, 1 * M, 16 * M});
  add(8, "allreduce", {8, 1 * M});
  for (const char* other : {"allgather", "broadcast", "alltoall", "reducescatter"}) add(2, other, {64 * K, 4 * M});
  return well;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Times hvd's collectives, called directly by ranks that are processes. Without --sizes: a short table.");
  app.add_option("--collective", options.collective,
                 "allreduce, allgather, broadcast, alltoall, reducescatter or copy");
  app.add_option("--sizes", options.sizes, "Bytes, for instance 8,64K,16M")
      ->delimiter(',')
      ->transform(CLI::AsSizeValue(false));
  app.add_option("--tensors", options.tensors, "Into which the bytes are cut")->check(CLI::PositiveNumber);
  app.add_flag("--in-place", options.in_place, "Allreduce: results over inputs");
  app.add_flag("--arena", options.arena, "Tensors in the memory that the ranks of a host share");
  app.add_flag("--calls", options.calls, "Allreduce, as programs call it; needs --sizes");
  app.add_option("--seconds", options.seconds, "For each size, about");
  app.add_option("--json", options.json, "Write the results into this file");
  app.add_option("--ranks,--ranks-per-host", options.job.ranks_per_host, "Processes on each host")
      ->check(CLI::PositiveNumber);
  app.add_flag("--pin", options.job.pin, "The r-th rank of a host on its r-th CPU, round and round");
  app.add_flag("--setsid", options.job.new_sessions, "Each rank in a session of its own");
  auto* hosts = app.add_option("--hosts", options.job.hosts, "How many")->check(CLI::PositiveNumber);
  app.add_option("--host", options.job.host, "The number of this one")->needs(hosts);
  auto* store = app.add_option("--store", options.job.store, "A file that all hosts see and that is not there yet");
  hosts->needs(store);
  app.add_option("--address", options.job.address, "Host 0: under which the others reach it")->needs(hosts);
  CLI11_PARSE(app, argc, argv);
  try {
    return (options.sizes.empty() ? print_table(options) : run(options)) ? EXIT_SUCCESS : EXIT_FAILURE;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return EXIT_FAILURE;
  }
}
