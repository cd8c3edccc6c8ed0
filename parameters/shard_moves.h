// Moves shards between servers, in jobs with one copy of each shard and several shards per server: publishes this
// server's loads and, on server 0, decides which shard moves where. One thread.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/bootstrap/store.h"
#include "parameters/held_shard.h"
#include "parameters/move_planner.h"
#include "parameters/shard_directory.h"

namespace hvd {

class ShardMoves {
 public:
  // The references outlive this.
  ShardMoves(const ServerOptions& options, const Store& store, const Log& log);

  // When to call check() again; Deadline::max(): never.
  Deadline next_check() const { return next_check_; }
  // Begins the moves that are due.
  void check(HeldShards& shards, TimePoint now);

 private:
  void compare_loads(HeldShards& shards, TimePoint now);

  const ServerOptions& options_;
  const Log& log_;
  const ShardDirectory directory_;
  MovePlanner planner_;
  std::vector<std::uint64_t> loads_;  // by shard, at the last comparison
  Deadline next_check_ = Deadline::max();
  Deadline next_window_;
};

}  // namespace hvd
