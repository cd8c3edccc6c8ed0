// A rank that sleeps, is stopped, or shares its core with someone busy: the others wait, nothing is lost, every sum is
// right, and nobody takes it for dead.
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <thread>
#include <vector>

#include "tests/support/catch.h"
#include "tests/support/fork_ranks.h"
#include "tests/support/run_ranks.h"
#include "tests/support/timeouts.h"

namespace hvd::testing {

namespace {

constexpr int kRanks = 3;
constexpr int kSlowRank = 1;

// Allreduces so far of each rank, seen by the test.
struct Progress {
  std::atomic<int> rounds[kRanks];
  std::atomic<bool> enough;
};

Progress* shared_progress() {
  void* memory = mmap(nullptr, sizeof(Progress), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return new (memory) Progress{};
}

// One allreduce after the other, small and large by turns, until the ranks agree that it is enough. 0: all were right.
int keep_reducing(Runtime& runtime, Progress& progress, const std::function<void(int round)>& before) {
  const int rank = runtime.topology().rank;
  std::vector<float> data(1 << 18);
  for (int round = 0;; ++round) {
    before(round);
    const std::int64_t elements = round % 2 == 0 ? 4 : static_cast<std::int64_t>(data.size());
    std::fill(data.begin(), data.end(), static_cast<float>(round % 1000 + rank));
    data[0] = progress.enough ? 1.0f : 0.0f;
    CallArguments call{.name = "round"};
    call.inputs = call.outputs = {{.data = data.data(), .shape = {elements}}};
    const Status status = outcome(runtime, call);
    if (!status.ok()) {
      std::fprintf(stderr, "rank %d: %s\n", rank, status.message().c_str());
      return 1;
    }
    const auto expected = static_cast<float>(kRanks * (round % 1000) + kRanks * (kRanks - 1) / 2);
    for (std::int64_t i = 1; i < elements; ++i) {
      if (data[static_cast<std::size_t>(i)] != expected) return 2;
    }
    progress.rounds[rank] = round + 1;
    if (data[0] > 0) return 0;
  }
}

void await_round(const Progress& progress, int round) {
  const Deadline timeout = deadline_after(200s);
  for (const auto& rounds : progress.rounds) {
    while (rounds < round && Clock::now() < timeout) std::this_thread::sleep_for(1ms);
    REQUIRE(rounds >= round);
  }
}

const Environment kOverTcp{{"HVD_SHARED_MEMORY", "0"}};

void check_all_well(ForkedRanks& ranks, Progress* progress) {
  progress->enough = true;
  for (int rank = 0; rank < kRanks; ++rank) CHECK(ranks.wait(rank) == 0);
  munmap(progress, sizeof *progress);
}

}  // namespace

TEST_CASE("a rank that is stopped for three seconds is waited for") {
  const Environment environment = GENERATE(Environment{}, kOverTcp);
  Progress* progress = shared_progress();
  ForkedRanks ranks(kRanks, environment, [&](int, const ForkedRanks::Start& start) {
    return keep_reducing(*start(), *progress, [](int) {});
  });
  await_round(*progress, 20);
  ranks.kill(kSlowRank, SIGSTOP);
  std::this_thread::sleep_for(3s);
  const int at_most = progress->rounds[0];
  CHECK(at_most <= progress->rounds[kSlowRank] + 2);  // nobody went on without it
  ranks.kill(kSlowRank, SIGCONT);
  await_round(*progress, at_most + 20);
  check_all_well(ranks, progress);
}

namespace {

struct Stop {
  const char* what;
  Environment environment;
  int rank;
  int ranks_per_host = 0;
};

// How the operations of live ranks ended, seen by the test.
struct Ends {
  std::atomic<int> operations[kRanks];
  std::atomic<int> ended;
};

// The same allreduce again and again, until it fails; then waits until it has failed for all but one. 0: in the right
// way, with the stopped rank's name. Who goes earlier is found to be lost.
int reduce_until_given_up(Runtime& runtime, Ends& ends, int stopped) {
  const int rank = runtime.topology().rank;
  std::vector<float> data(1000);
  Status status;
  while (status.ok()) {
    CallArguments call{.name = "x"};
    call.inputs = call.outputs = {{.data = data.data(), .shape = {1000}}};
    status = outcome_of_run(runtime, call, 120s);
    if (status.ok()) ++ends.operations[rank];
  }
  ++ends.ended;
  const Deadline timeout = deadline_after(60s);
  while (ends.ended < kRanks - 1 && Clock::now() < timeout) std::this_thread::sleep_for(1ms);
  const bool is_right = status.code() == StatusCode::timeout || status.code() == StatusCode::aborted;
  const auto says = [&](const std::string& text) { return status.message().find(text) != std::string::npos; };
  // Stopped between two instructions: the others know that all have come, but not who is to say so.
  const bool is_named = says("rank " + std::to_string(stopped)) || says("the last rank, which has begun");
  if (is_right && is_named) return 0;
  std::fprintf(stderr, "rank %d: %s\n", rank, status.message().c_str());
  return 2;
}

}  // namespace

TEST_CASE("what waits for a stopped rank is given up at the stall limit, wherever it is stopped", "[timed]") {
  const Environment limit{{"HVD_STALL_CHECK_TIME_SECONDS", "0"}, {"HVD_STALL_SHUTDOWN_TIME_SECONDS", "1"}};
  const auto [what, environment, stopped, ranks_per_host] = GENERATE(
      Stop{"locked, in shared memory", {}, 1}, Stop{"locked, in shared memory, the coordinator", {}, 0},
      Stop{"negotiating", {{"HVD_SCHEDULE_LOCK", "0"}}, 1},
      Stop{"negotiating, the coordinator", {{"HVD_SCHEDULE_LOCK", "0"}}, 0}, Stop{"locked, over TCP", kOverTcp, 1},
      Stop{"negotiating, over TCP, the coordinator", {{"HVD_SCHEDULE_LOCK", "0"}, {"HVD_SHARED_MEMORY", "0"}}, 0},
      Stop{"locked, the leader of another host", {}, 2, 2}, Stop{"locked, beside a leader", {}, 1, 2});
  CAPTURE(what);
  const int stopped_rank = stopped;
  Environment together = limit;
  together.insert(environment.begin(), environment.end());
  void* memory = mmap(nullptr, sizeof(Ends), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  Ends& ends = *new (memory) Ends{};
  const auto body = [&](int, const ForkedRanks::Start& start) {
    return reduce_until_given_up(*start(), ends, stopped_rank);
  };
  ForkedRanks ranks(kRanks, together, body, ranks_per_host);
  const Deadline timeout = deadline_after(60s);
  while (ends.operations[stopped] < 200 && Clock::now() < timeout) std::this_thread::sleep_for(1ms);
  REQUIRE(ends.operations[stopped] >= 200);
  const TimePoint before = Clock::now();
  ranks.kill(stopped, SIGSTOP);
  for (int rank = 0; rank < kRanks; ++rank) {
    if (rank != stopped) CHECK(ranks.wait(rank) == 0);
  }
  const Duration waited = Clock::now() - before;
  CHECK(waited > 500ms);
  CHECK(waited < at_most(10s));
  ranks.kill(stopped, SIGKILL);
  ranks.wait(stopped);
  munmap(memory, sizeof ends);
}

TEST_CASE("a rank that sleeps between its calls is waited for") {
  const Environment environment = GENERATE(Environment{}, kOverTcp);
  Progress* progress = shared_progress();
  ForkedRanks ranks(kRanks, environment, [&](int rank, const ForkedRanks::Start& start) {
    return keep_reducing(*start(), *progress, [&](int round) {
      if (rank == kSlowRank && round % 10 == 0) std::this_thread::sleep_for(200ms);
    });
  });
  await_round(*progress, 40);
  check_all_well(ranks, progress);
}

TEST_CASE("a rank on a busy core is waited for") {
  const Environment environment = GENERATE(Environment{}, kOverTcp);
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(static_cast<std::size_t>(sched_getcpu()), &one);
  std::vector<pid_t> hogs;
  for (int i = 0; i < 2; ++i) {
    hogs.push_back(fork());
    if (hogs.back() == 0) {
      sched_setaffinity(0, sizeof one, &one);
      alarm(120);
      for (volatile bool forever = true; forever;) {
      }
    }
  }
  Progress* progress = shared_progress();
  ForkedRanks ranks(kRanks, environment, [&](int rank, const ForkedRanks::Start& start) {
    if (rank == kSlowRank) sched_setaffinity(0, sizeof one, &one);
    return keep_reducing(*start(), *progress, [](int) {});
  });
  await_round(*progress, 60);
  check_all_well(ranks, progress);
  for (const pid_t hog : hogs) {
    kill(hog, SIGKILL);
    waitpid(hog, nullptr, 0);
  }
}

}  // namespace hvd::testing
