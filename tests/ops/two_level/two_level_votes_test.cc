// The exchange of votes where some hosts have several ranks.
#include "ops/two_level/two_level.h"

#include <atomic>
#include <thread>

#include "core/base/error.h"
#include "ops/host/collectives.h"
#include "tests/ops/host/host_ranks.h"
#include "tests/support/catch.h"
#include "tests/support/votes.h"

using namespace hvd;
using namespace hvd::testing;

TEST_CASE("two-level votes: every subset of ranks declines, one exchange after the other, collectives in between") {
  const int cpus = GENERATE(64, 1);
  const auto layout = GENERATE(std::vector<int>{2, 2}, std::vector<int>{3, 1, 2}, std::vector<int>{1, 4},
                               std::vector<int>{2, 1, 1, 1, 2});
  CAPTURE(cpus, layout);
  on_host_ranks({.ranks_by_host = layout, .cpus = cpus, .first_step = 0xfffffff0}, [](HostRank& self) {
    const ProcessSet set = everyone(self.size);
    const auto votes = make_two_level_vote_exchange(self.context, self.transport, self.topology, 20s);
    for (std::uint32_t decliners = 0; decliners < 1U << self.size; ++decliners) {
      const bool declined = cast_vote(*votes, set, decliners, (decliners >> self.rank & 1) != 0);
      require(declined == (decliners != 0), "wrong answer to call_id " + std::to_string(decliners));
      if (decliners % 8 == 0) host_barrier(*self.context);
    }
  });
}

TEST_CASE("two-level votes: who asks says so when another rank is late, on whatever host") {
  const int late = GENERATE(0, 1, 2, 3);
  const int cpus = GENERATE(64, 1);
  constexpr int kRanks = 4;
  CAPTURE(late, cpus);
  std::vector<std::atomic<int>> calls(kRanks);
  std::atomic<int> enough{0};
  on_host_ranks({.ranks_by_host = {2, 2}, .cpus = cpus}, [&](HostRank& self) {
    const ProcessSet set = everyone(self.size);
    const auto votes = make_two_level_vote_exchange(self.context, self.transport, self.topology, 20s);
    votes->set_late_callback(5ms, [&, rank = self.rank] {
      const bool again = ++calls[static_cast<std::size_t>(rank)] < 3;
      enough += again ? 0 : 1;
      return again;
    });
    const bool is_late = self.rank == late;
    while (is_late && enough < kRanks - 1) std::this_thread::yield();
    if (is_late) std::this_thread::sleep_for(20ms);  // in which nobody calls any more
    require(cast_vote(*votes, set, 1, is_late), "nobody has declined");
  });
  for (int rank = 0; rank < kRanks; ++rank) CHECK(calls[static_cast<std::size_t>(rank)] == (rank == late ? 0 : 3));
}

TEST_CASE("two-level votes: a rank that never comes is a timeout, on its own host by its name") {
  std::atomic<int> ended{0}, named{0};
  on_host_ranks({.ranks_by_host = {2, 2}, .timeout = 100ms}, [&](HostRank& self) {
    constexpr int kMissing = 3;
    if (self.rank == kMissing) {
      while (ended < 3) std::this_thread::yield();
      return;
    }
    const auto votes = make_two_level_vote_exchange(self.context, self.transport, self.topology, 100ms);
    try {
      votes->ask(everyone(self.size), 1);
    } catch (const Timeout& error) {
      if (self.rank == 2 && std::string(error.what()).find("rank 3") != std::string::npos) ++named;
    } catch (const PeerLost&) {
      // The leader of the other host has given up before this one.
    }
    ++ended;
  });
  CHECK(named == 1);
}
