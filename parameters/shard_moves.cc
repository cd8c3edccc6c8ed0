#include "parameters/shard_moves.h"

#include <string>
#include <utility>

#include "core/base/error.h"

namespace hvd {

namespace {

constexpr Duration kInterval = std::chrono::milliseconds(250);

}  // namespace

ShardMoves::ShardMoves(const ServerOptions& options, const Store& store, const Log& log)
    : options_(options),
      log_(log),
      directory_(store, options.servers),
      planner_(options.servers),
      loads_(static_cast<std::size_t>(options.shards())),
      next_window_(deadline_after(options.load_window)) {
  const bool may_move = options.copies == 1 && options.parts > 1 && options.servers > 1;
  if (may_move) next_check_ = deadline_after(kInterval);
}

void ShardMoves::check(HeldShards& shards, TimePoint now) {
  if (now < next_check_) return;
  next_check_ = now + kInterval;
  try {
    if (now >= next_window_) compare_loads(shards, now);
    for (auto& [number, held] : shards) {
      const int wanted = held.is_primary() ? directory_.wanted_server_of(number) : options_.server;
      if (wanted != options_.server) held.move_to(wanted);
    }
  } catch (const Error& error) {  // without the store the shards stay where they are
    log_.info(std::string("cannot ask where shards are to be: ") + error.what());
  }
}

// Each server tells its loads; server 0 decides, unless a shard is moving.
void ShardMoves::compare_loads(HeldShards& shards, TimePoint now) {
  next_window_ = now + options_.load_window;
  for (auto& [number, held] : shards) {
    if (const std::uint64_t bytes = held.replicated().take_load()) directory_.add_load(number, bytes);
  }
  if (options_.server != 0) return;
  std::vector<ShardLoad> of_all;
  bool is_moving = false;
  for (int shard = 0; shard < options_.shards(); ++shard) {
    const std::uint64_t load = directory_.load_of(shard);
    const int server = directory_.server_of(shard);
    is_moving = is_moving || directory_.wanted_server_of(shard) != server;
    of_all.push_back({.server = server, .bytes = load - std::exchange(loads_[static_cast<std::size_t>(shard)], load)});
  }
  if (is_moving) return;
  if (const auto move = planner_.plan(of_all)) directory_.want(move->shard, move->from, move->to);
}

}  // namespace hvd
