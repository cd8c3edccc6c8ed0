// Which shard moves, of loads in megabytes.
#include "parameters/move_planner.h"

#include <limits>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "parameters/held_shard.h"
#include "parameters/shard_directory.h"
#include "parameters/shard_moves.h"
#include "tests/support/catch.h"

namespace hvd {
namespace {

using Shards = std::vector<std::pair<int, std::uint64_t>>;  // server and load
using Moved = std::optional<std::tuple<int, int, int>>;     // shard, from, to

Moved planned(MovePlanner& planner, const Shards& shards) {
  std::vector<ShardLoad> loads;
  for (const auto& [server, megabytes] : shards) loads.push_back({.server = server, .bytes = megabytes << 20});
  const auto move = planner.plan(loads);
  return move ? Moved({move->shard, move->from, move->to}) : std::nullopt;
}

TEST_CASE("a shard moves from a server that has stayed too hot, if that helps") {
  struct Row {
    int servers;
    Shards shards;
    Moved move;
  };
  const Row row = GENERATE(values<Row>({
      {2, {{0, 50}, {1, 50}, {0, 40}, {1, 40}}, {}},           // alike
      {2, {{0, 70}, {1, 30}, {0, 60}, {1, 20}}, {}},           // below 1.5 times the mean
      {2, {{0, 80}, {1, 10}, {0, 60}, {1, 10}}, {{2, 0, 1}}},  // the one that leaves the lower maximum
      {2, {{0, 10}, {1, 80}, {0, 10}, {1, 60}}, {{3, 1, 0}}},  //
      {2, {{0, 100}, {1, 1}, {0, 3}, {1, 1}}, {}},             // one hot shard: the maximum stays, or moves with it
      {2, {{0, 100}, {1, 10}}, {}},                            // its only shard
      {2, {{1, 5}, {1, 80}, {0, 0}, {1, 40}}, {{1, 1, 0}}},    // of three
      {2, {{0, 2}, {1, 0}, {0, 1}, {1, 0}}, {}},               // nobody is helped
      {3, {{0, 30}, {1, 20}, {2, 4}, {0, 30}}, {{0, 0, 2}}},   // to the coldest
      {1, {{0, 30}, {0, 20}}, {}},                             // nowhere
      {2, {{0, 0}, {1, 0}, {0, 0}, {1, 0}}, {}},               // idle
  }));
  MovePlanner planner(row.servers);
  CHECK_FALSE(planned(planner, row.shards));
  CHECK_FALSE(planned(planner, row.shards));
  CHECK(planned(planner, row.shards) == row.move);
  CHECK_FALSE(planned(planner, row.shards));  // begins to count again
}

TEST_CASE("what is hot for a moment moves nothing") {
  MovePlanner planner(2);
  const Shards hot = {{0, 80}, {1, 10}, {0, 60}, {1, 10}}, cold = {{0, 10}, {1, 10}, {0, 10}, {1, 10}};
  const Shards other = {{0, 10}, {1, 80}, {0, 10}, {1, 60}};
  for (int i = 0; i < 5; ++i) {
    for (const Shards& window : {hot, hot, cold, other, other, hot, hot, cold}) CHECK_FALSE(planned(planner, window));
  }
}

TEST_CASE("shards stay where they are when the job's store fails, whatever its error is") {
  const ServerOptions options{.servers = 2, .parts = 2};
  const Store store;
  const JobKey key = JobKey::random();
  const Log log("test", LogLevel::off);
  HeldShards shards(options, store, key, log);
  shards.hold_own(true);
  HeldShard& own = *shards.find(0);

  SECTION("while servers tell their loads") {
    store.add("ps/shard/0/load", std::numeric_limits<std::int64_t>::max());  // no more can be added
    own.replicated().add_load(100);
    ShardMoves moves(options, store, log);
    CHECK_NOTHROW(moves.check(shards, Clock::now() + 1h));
  }
  SECTION("when a move is given up") {
    own.move_to(1);
    store.add("ps/shard/0/wanted", std::numeric_limits<std::int64_t>::max());
    CHECK_NOTHROW(own.stop_moving());
  }
  CHECK(own.is_primary());
}

}  // namespace
}  // namespace hvd
