// A rank dies by SIGKILL in the middle of an allreduce loop: every survivor hears who, in under a second, nobody writes
// into its tensors any more, and its later calls fail the same way.
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <thread>

#include "core/base/error.h"
#include "tests/support/catch.h"
#include "tests/support/fork_ranks.h"
#include "tests/support/run_ranks.h"
#include "tests/support/timeouts.h"

namespace hvd::testing {

namespace {

constexpr int kUsualRanks = 4;

// Exit codes of the survivors.
enum : int {
  kHeardInTime = 0,
  kHeardLate = 10,
  kWrongError = 11,
  kLaterCallPassed = 12,
  kNoError = 13,
  kWrittenAfterwards = 14
};

// Shared between the test and its ranks.
struct Stage {
  std::atomic<int> looping;                // ranks that have finished their first allreduce
  std::atomic<std::int64_t> killed_at_us;  // by the steady clock, which processes share
};

std::int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(Clock::now().time_since_epoch()).count();
}

// What the ranks do when one of them dies.
enum class Loop {
  alike,        // the same operation again and again: a locked schedule
  changing,     // sometimes another one: a schedule that is learned, locked and given up all the time
  synchronous,  // on the callers' threads
};

Status take_turn(Runtime& runtime, CallArguments& call, Loop loop, int turn) {
  if (loop == Loop::synchronous) return outcome_of_run(runtime, call);
  call.name = loop == Loop::changing && turn % 16 == 15 ? "other." + std::to_string(turn % 7) : "loop";
  return outcome(runtime, call);
}

int survive(Runtime& runtime, Stage& stage, std::int64_t elements, Loop loop, const std::string& victim) {
  std::vector<float> data(static_cast<std::size_t>(elements), 1);
  const TensorArgument view{.data = data.data(), .shape = {elements}};
  CallArguments call{.name = "loop"};
  call.inputs = call.outputs = {view};
  for (int i = 0; i < 1'000'000'000; ++i) {
    const Status status = take_turn(runtime, call, loop, i);
    if (i == 0) stage.looping.fetch_add(1);
    if (status.ok()) continue;
    std::ranges::fill(data, -1.0F);
    const Duration took = std::chrono::microseconds(now_us() - stage.killed_at_us.load());
    const bool named =
        status.message().find(victim) != std::string::npos && status.message().find("test-host") != std::string::npos;
    if (status.code() != StatusCode::peer_lost || !named) {
      std::fprintf(stderr, "unexpected: %s\n", status.message().c_str());
      return kWrongError;
    }
    if (took > at_most(1s)) return kHeardLate;
    if (outcome(runtime, call) != status) return kLaterCallPassed;
    if (elements > 2) std::this_thread::sleep_for(20ms);
    const bool is_untouched = std::ranges::all_of(data, [](float value) { return value == -1.0F; });
    return is_untouched ? kHeardInTime : kWrittenAfterwards;
  }
  return kNoError;
}

// How the ranks are spread: a job of its own kind each.
struct Spread {
  int ranks_per_host = 0;  // 0: all on one
  bool shared_memory = true;
  int ranks = kUsualRanks;
};

void kill_one(const Spread& spread, std::int64_t elements, Loop loop, int victim, Duration after) {
  auto* stage = new (mmap(nullptr, sizeof(Stage), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Stage{};
  const auto body = [&](int, const ForkedRanks::Start& start) {
    const auto runtime = start();
    return survive(*runtime, *stage, elements, loop, "rank " + std::to_string(victim));
  };
  ForkedRanks ranks(spread.ranks, {{"HVD_SHARED_MEMORY", spread.shared_memory ? "1" : "0"}}, body,
                    spread.ranks_per_host);
  const Deadline timeout = deadline_after(std::chrono::seconds(30));
  while (stage->looping.load() < spread.ranks && Clock::now() < timeout) std::this_thread::sleep_for(1ms);
  REQUIRE(stage->looping.load() == spread.ranks);
  std::this_thread::sleep_for(after);
  stage->killed_at_us.store(now_us());
  ranks.kill(victim, SIGKILL);
  for (int rank = 0; rank < spread.ranks; ++rank) {
    INFO("victim " << victim << ", rank " << rank);
    CHECK(ranks.wait(rank) == (rank == victim ? 128 + SIGKILL : kHeardInTime));
  }
  munmap(stage, sizeof(Stage));
}

void kill_many(const Spread& spread, Loop loop, int times) {
  std::mt19937 random(static_cast<unsigned>(times));
  for (int i = 0; i < times; ++i) {
    const std::int64_t elements = i % 2 == 0 ? 2 : 1 << 20;
    kill_one(spread, elements, loop, static_cast<int>(random() % kUsualRanks),
             std::chrono::microseconds(random() % 20'000));
  }
}

}  // namespace

TEST_CASE("SIGKILL in an allreduce loop over shared memory is heard by name in under a second", "[timed]") {
  kill_many({}, GENERATE(Loop::alike, Loop::changing, Loop::synchronous), 10);
}

TEST_CASE("SIGKILL in an allreduce loop over TCP is heard by name in under a second", "[timed]") {
  kill_many({.shared_memory = false}, GENERATE(Loop::alike, Loop::changing, Loop::synchronous), 6);
}

TEST_CASE("SIGKILL in an allreduce loop of several hosts is heard by name in under a second", "[timed]") {
  kill_many({.ranks_per_host = GENERATE(1, 2)}, GENERATE(Loop::alike, Loop::changing, Loop::synchronous), 6);
}

TEST_CASE("SIGKILL of a rank between others in the control tree is heard by name on both sides of it", "[timed]") {
  // 20 hosts: rank 1 has a child.
  kill_one({.ranks_per_host = 1, .ranks = 20}, 2, Loop::alike, 1, std::chrono::milliseconds(5));
}

TEST_CASE("SIGKILL of a rank of a process set is heard by a rank outside of it", "[timed]") {
  constexpr int kVictim = 3, kOutside = 1;
  for (int trial = 0; trial < 6; ++trial) {
    auto* stage = new (mmap(nullptr, sizeof(Stage), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Stage{};
    const auto body = [&](int rank, const ForkedRanks::Start& start) {
      const auto runtime = start();
      const std::int32_t set = runtime->sets().add({0, 2, kVictim});
      CallArguments waits{.collective = Collective::barrier, .name = "nobody else comes"};
      if (rank != kOutside) waits.process_set = set;
      stage->looping.fetch_add(1);
      if (rank == kVictim) pause();
      const Status status = outcome(*runtime, waits);
      if (status.message().find("rank 3") == std::string::npos) return static_cast<int>(kWrongError);
      const Duration took = std::chrono::microseconds(now_us() - stage->killed_at_us.load());
      return static_cast<int>(took > at_most(1s) ? kHeardLate : kHeardInTime);
    };
    ForkedRanks ranks(kUsualRanks, {}, body, 2);
    const Deadline timeout = deadline_after(std::chrono::seconds(30));
    while (stage->looping.load() < kUsualRanks && Clock::now() < timeout) std::this_thread::sleep_for(1ms);
    REQUIRE(stage->looping.load() == kUsualRanks);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    stage->killed_at_us.store(now_us());
    ranks.kill(kVictim, SIGKILL);
    for (const int rank : {0, 1, 2}) {
      INFO("trial " << trial << ", rank " << rank);
      CHECK(ranks.wait(rank) == kHeardInTime);
    }
    munmap(stage, sizeof(Stage));
  }
}

TEST_CASE("SIGKILL a hundred times", "[.long]") {
  const Loop loop = GENERATE(Loop::alike, Loop::changing, Loop::synchronous);
  kill_many({}, loop, 100);
  kill_many({.shared_memory = false}, loop, 100);
  kill_many({.ranks_per_host = 1}, loop, 100);
  kill_many({.ranks_per_host = 2}, loop, 100);
}

}  // namespace hvd::testing
