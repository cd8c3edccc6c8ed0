// Waiting that does not end well: peers that do not come, and jobs that are given up.
#include "ops/host/window.h"

#include <chrono>
#include <string>
#include <thread>

#include "core/base/error.h"
#include "ops/host/collectives.h"
#include "tests/ops/host/host_ranks.h"
#include "tests/support/catch.h"
#include "tests/support/timeouts.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Timeout& error) {
    return error.what();
  }
  return "no timeout";
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("window: a timeout names the ranks that did not come, the collective and the time") {
  const int cpus = GENERATE(64, 1);
  on_host_ranks({.ranks_by_host = {3}, .cpus = cpus, .timeout = 1s}, [](HostRank& self) {
    if (self.rank == 1) return;
    const std::string message = message_of([&] { host_barrier(*self.context); });
    require(contains(message, "rank 1 on host-0 (pid 101)"), message);
    require(!contains(message, "rank 0") && !contains(message, "rank 2"), message);
    require(contains(message, "barrier") && contains(message, "1.0 s"), message);
  });
}

TEST_CASE("window: a rank that stops in the middle is named") {
  const int cpus = GENERATE(64, 1);
  Buffer region(WindowMemory::region_bytes(3, 4096) + 4096);
  void* start = region.data();
  std::size_t space = region.size();
  std::align(4096, region.size() - 4096, start, space);
  const std::span<std::byte> aligned(static_cast<std::byte*>(start), region.size() - 4096);
  std::string messages[3];
  std::vector<std::thread> threads;
  for (int rank = 0; rank < 3; ++rank) {
    threads.emplace_back([&, rank] {
      Window window(aligned, rank, 3, {.chunk_bytes = 4096, .cpu_use = {.ranks = 3, .cpus = cpus}, .timeout = 1s},
                    nullptr, [](int r) { return "rank " + std::to_string(r); });
      window.waits().begin("allreduce");
      window.open_step();
      window.publish();
      window.await_all();
      window.reduction().open();
      if (rank == 2 && cpus == 64) return;  // has the third slice to itself
      if (rank == 2) {
        window.reduction().take_slice();  // a slice that nobody else can take any more
        return;
      }
      messages[rank] = message_of([&] {
        while (window.reduction().take_slice()) window.reduction().finish_slice();
        window.reduction().await();
      });
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const int rank : {0, 1}) {
    INFO(messages[rank]);
    // If slices are claimed, the lost rank may come when the others have done everything.
    const bool finished = cpus == 1 && messages[rank] == "no timeout";
    CHECK((finished || contains(messages[rank], "rank 2 to do its part")));
  }
}

namespace {

// Ranks 0 to 2 wait for rank 3, which never comes, until the run is given up: the longest time until one hears of it.
double seconds_until_all_know(int cpus) {
  AbortFlag abort;
  TimePoint raised;
  std::thread killer([&] {
    std::this_thread::sleep_for(100ms);
    raised = Clock::now();
    abort.raise(Status(StatusCode::peer_lost, "rank 3 on host-0 is gone"));
  });
  std::atomic<int> told{0};
  std::atomic<double> longest{0};
  on_host_ranks({.ranks_by_host = {4}, .cpus = cpus, .abort = &abort}, [&](HostRank& self) {
    if (self.rank == 3) return;
    try {
      host_barrier(*self.context);
    } catch (const Error& error) {
      require(error.code() == StatusCode::peer_lost && std::string(error.what()) == "rank 3 on host-0 is gone",
              error.what());
      const double took = seconds(Clock::now() - raised);
      double before = longest;
      while (before < took && !longest.compare_exchange_weak(before, took)) {
      }
      ++told;
    }
  });
  killer.join();
  CHECK(told == 3);
  return longest;
}

}  // namespace

TEST_CASE("window: an abort ends the wait with its reason, soon", "[timed]") {
  const int cpus = GENERATE(64, 1);
  CHECK(seconds_until_all_know(cpus) < seconds(at_most(100ms)));  // 50 ms promised
}

TEST_CASE("window: what does not fit is refused") {
  Buffer memory(1 << 16);
  const auto construct = [&](int rank, int ranks, std::size_t chunk_bytes) {
    Window(std::span(memory), rank, ranks, {.chunk_bytes = chunk_bytes}, nullptr, [](int) { return ""; });
  };
  CHECK_THROWS_AS(construct(0, 1, 100), InvalidArgument);
  CHECK_THROWS_AS(construct(0, 65, 4096), InvalidArgument);
  CHECK_THROWS_AS(construct(2, 2, 4096), InvalidArgument);
  CHECK_THROWS_AS(construct(0, 8, 1 << 16), InvalidArgument);
}
