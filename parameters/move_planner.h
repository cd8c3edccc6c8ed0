// Decides which shard moves to which server, so that none has much more to do than the others. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace hvd {

struct ShardLoad {
  int server = 0;           // that has the shard
  std::uint64_t bytes = 0;  // of requests and answers in a window
};

struct ShardMove {
  int shard = 0, from = 0, to = 0;
};

class MovePlanner {
 public:
  explicit MovePlanner(int servers) : servers_(servers) {}

  // Takes the loads of another window, by shard, and returns the move that is to begin, if any: from a server that has
  // had the highest load in three windows in a row, each time over 1.5 times the mean and some megabytes, if that
  // lowers the highest load by a tenth. A server keeps one shard at least.
  std::optional<ShardMove> plan(const std::vector<ShardLoad>& shards);

 private:
  static std::optional<ShardMove> best_move(const std::vector<ShardLoad>& shards,
                                            const std::vector<std::uint64_t>& servers);

  const int servers_;
  int hottest_ = -1;
  int windows_ = 0;  // in which it was too hot
};

}  // namespace hvd
