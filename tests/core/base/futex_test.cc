#include "core/base/futex.h"

#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <memory>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "tests/support/catch.h"
#include "tests/support/timeouts.h"

using namespace hvd;

TEST_CASE("ranks spin only while each can have a core") {
  struct Case {
    CpuUse use;
    bool spins;
  };
  for (const Case& c :
       {Case{{1, 1}, true}, Case{{2, 2}, true}, Case{{3, 2}, false}, Case{{4, 64}, true}, Case{{16, 2}, false}}) {
    CAPTURE(c.use.ranks, c.use.cpus);
    const WaitPolicy policy = wait_policy_for(c.use);
    CHECK((policy.spin > Duration::zero()) == c.spins);
    CHECK((policy.yields > 0) == !c.spins);
    CHECK(policy.spin <= std::chrono::microseconds(20));
    CHECK(policy.yields <= 64);
    const WaitPolicy network = network_wait_policy_for(c.use);
    CHECK((network.spin > policy.spin) == c.spins);
    CHECK(network.yields == policy.yields);
    const WaitPolicy caller = caller_wait_policy_for(c.use);
    CHECK((caller.idle_spin > Duration::zero()) == c.spins);
    CHECK(caller.spin == policy.spin);
    CHECK(caller.yields == policy.yields);
    CHECK(policy.idle_spin == Duration::zero());
  }
}

TEST_CASE("spinning in vain ends, but for a try now and then; one success brings it back") {
  SpinCredit credit;
  for (int vain = 0; vain < 3; ++vain) {
    CHECK(credit.worth_spinning());
    credit.spun(false);
  }
  int tries = 0;
  for (int wait = 0; wait < 160; ++wait) {
    if (!credit.worth_spinning()) continue;
    ++tries;
    credit.spun(false);
  }
  CHECK(tries == 10);
  while (!credit.worth_spinning()) continue;
  credit.spun(true);
  for (int wait = 0; wait < 3; ++wait) {
    CHECK(credit.worth_spinning());
    credit.spun(false);
  }
  CHECK_FALSE(credit.worth_spinning());
}

namespace {

const std::vector<WaitPolicy> kPolicies{{.spin = Duration{0}, .yields = 0},
                                        {.spin = std::chrono::microseconds(20), .yields = 0},
                                        {.spin = Duration{0}, .yields = 64},
                                        {.idle_spin = 1ms}};

}  // namespace

TEST_CASE("a value that has changed already is returned at once") {
  Signal signal;
  signal.store_and_wake(5);
  CHECK(signal.wait_change(0, Clock::now(), nullptr) == 5);
}

TEST_CASE("nothing changes: the old value comes back at the deadline") {
  for (const WaitPolicy& policy : kPolicies) {
    Signal signal;
    const TimePoint start = Clock::now();
    CHECK(AdaptiveWait(policy).wait_change(signal, 0, deadline_after(20ms), nullptr) == 0);
    CHECK(Clock::now() - start >= 20ms);
    CHECK(signal.sleepers.load() == 0);
  }
}

TEST_CASE("two threads alternate, however they wait") {
  constexpr std::uint32_t kRounds = 500;
  for (const WaitPolicy& policy : kPolicies) {
    Signal ping, pong;
    auto echo = std::async(std::launch::async, [&] {
      AdaptiveWait wait(policy);
      for (std::uint32_t i = 0; i < kRounds; ++i) {
        if (wait.wait_change(ping, i, deadline_after(20s), nullptr) != i + 1) return false;
        pong.store_and_wake(i + 1);
      }
      return true;
    });
    AdaptiveWait wait(policy);
    bool in_step = true;
    for (std::uint32_t i = 0; i < kRounds && in_step; ++i) {
      ping.store_and_wake(i + 1);
      in_step = wait.wait_change(pong, i, deadline_after(20s), nullptr) == i + 1;
    }
    CHECK(in_step);
    CHECK(echo.get());
  }
}

TEST_CASE("spinning on while the CPU is idle catches a value, and ends with the deadline") {
  const WaitPolicy policy{.idle_spin = 60s};
  CHECK(AdaptiveWait(policy).spin(*std::make_unique<Signal>(), 0, deadline_after(5ms)) == 0);

  // A thread that shares its CPU stops spinning, so it may take several tries on a busy machine.
  const Deadline deadline = deadline_after(20s);
  bool caught = false;
  while (!caught && Clock::now() < deadline) {
    Signal signal;
    std::atomic<bool> begun{false};
    auto spinning = std::async(std::launch::async, [&] {
      AdaptiveWait wait(policy);
      begun = true;
      return wait.spin(signal, 0, deadline);
    });
    while (!begun) std::this_thread::yield();
    std::this_thread::sleep_for(100us);
    signal.store_and_wake(1);
    caught = spinning.get() == 1;
  }
  CHECK(caught);
}

TEST_CASE("a thread that spins because its CPU is idle gives way to another one") {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(sched_getcpu(), &one);
  std::atomic<bool> ended{false};
  std::thread computing([&] {
    sched_setaffinity(0, sizeof one, &one);
    while (!ended) continue;
  });
  auto spinning = std::async(std::launch::async, [&one] {
    if (sched_setaffinity(0, sizeof one, &one) != 0) return Duration::max();
    Signal signal;
    const TimePoint started = Clock::now();
    AdaptiveWait({.idle_spin = 60s}).spin(signal, 0);
    return Clock::now() - started;
  });
  CHECK(spinning.get() < 60s);
  ended = true;
  computing.join();
}

TEST_CASE("what was written before the signal is seen after it") {
  for (int round = 0; round < 200; ++round) {
    Signal signal;
    int payload = 0;  // not atomic: the signal alone orders it
    std::thread writer([&] {
      payload = round + 1;
      signal.store_and_wake(1);
    });
    const std::uint32_t seen = signal.wait_change(0, deadline_after(20s), nullptr);
    const int read = seen == 1 ? payload : -1;
    writer.join();
    REQUIRE(read == round + 1);
  }
}

TEST_CASE("many writers, many sleepers, no wake-up is lost") {
  constexpr int kWriters = 3, kSleepers = 3, kEach = 200;
  Signal signal;
  std::vector<std::future<bool>> sleepers;
  for (int i = 0; i < kSleepers; ++i) {
    sleepers.push_back(std::async(std::launch::async, [&] {
      std::uint32_t seen = 0;
      while (seen < kWriters * kEach) {
        const std::uint32_t now = signal.wait_change(seen, deadline_after(20s), nullptr);
        if (now == seen) return false;
        seen = now;
      }
      return true;
    }));
  }
  std::vector<std::future<void>> writers;
  for (int i = 0; i < kWriters; ++i) {
    writers.push_back(std::async(std::launch::async, [&] {
      for (int n = 0; n < kEach; ++n) signal.increment_and_wake();
    }));
  }
  for (auto& writer : writers) writer.get();
  for (auto& sleeper : sleepers) CHECK(sleeper.get());
  CHECK(signal.value.load() == kWriters * kEach);
}

TEST_CASE("a raised abort flag ends the wait with its reason", "[timed]") {
  Signal signal;
  AbortFlag abort;
  auto waiter = std::async(std::launch::async, [&] { return signal.wait_change(0, deadline_after(20s), &abort); });
  CHECK(waiter.wait_for(10ms) == std::future_status::timeout);
  const TimePoint raised = Clock::now();
  abort.raise(Status(StatusCode::peer_lost, "rank 3 is gone"));
  CHECK_THROWS_WITH(waiter.get(), "rank 3 is gone");
  CHECK(Clock::now() - raised < testing::at_most(10 * kAbortPollInterval));
  CHECK(signal.sleepers.load() == 0);

  signal.store_and_wake(1);
  CHECK(signal.wait_change(0, deadline_after(1s), &abort) == 1);  // a value that is there comes first
}

TEST_CASE("a signal in shared memory wakes another process") {
  void* page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(page != MAP_FAILED);
  auto* signals = static_cast<Signal*>(page);  // zero bytes are a fresh signal
  const pid_t child = fork();
  if (child == 0) {
    const bool woken = signals[0].wait_change(0, deadline_after(20s), nullptr) == 1;
    signals[1].store_and_wake(woken ? 1 : 2);
    _exit(0);
  }
  REQUIRE(child > 0);
  signals[0].store_and_wake(1);
  CHECK(signals[1].wait_change(0, deadline_after(20s), nullptr) == 1);
  waitpid(child, nullptr, 0);
  munmap(page, 4096);
}

TEST_CASE("sequence numbers compare across wrap-around") {
  CHECK(sequence_reached(5, 5));
  CHECK(sequence_reached(6, 5));
  CHECK_FALSE(sequence_reached(4, 5));
  CHECK(sequence_reached(2, 0xfffffffe));
  CHECK_FALSE(sequence_reached(0xfffffffe, 2));
}
