#include "parameters/move_planner.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

namespace hvd {

namespace {

constexpr int kWindows = 3;
constexpr std::uint64_t kMinBytes = std::uint64_t{4} << 20;  // below, nobody is helped by a move

}  // namespace

std::optional<ShardMove> MovePlanner::plan(const std::vector<ShardLoad>& shards) {
  std::vector<std::uint64_t> servers(static_cast<std::size_t>(servers_));
  for (const ShardLoad& shard : shards) servers[static_cast<std::size_t>(shard.server)] += shard.bytes;
  const auto highest = std::ranges::max_element(servers);
  const std::uint64_t sum = std::accumulate(servers.begin(), servers.end(), std::uint64_t{0});
  const bool is_too_hot = *highest >= kMinBytes && *highest * 2 * servers.size() > 3 * sum;
  const int hottest = is_too_hot ? static_cast<int>(highest - servers.begin()) : -1;
  windows_ = hottest == hottest_ ? windows_ + 1 : 1;
  hottest_ = hottest;
  if (hottest < 0 || windows_ < kWindows) return std::nullopt;
  windows_ = 0;
  return best_move(shards, servers);
}

// To the server with the lowest load, the shard that leaves the lower maximum of the two.
std::optional<ShardMove> MovePlanner::best_move(const std::vector<ShardLoad>& shards,
                                                const std::vector<std::uint64_t>& servers) {
  const auto from = std::ranges::max_element(servers), to = std::ranges::min_element(servers);
  const int hottest = static_cast<int>(from - servers.begin());
  if (std::ranges::count(shards, hottest, &ShardLoad::server) < 2) return std::nullopt;
  std::optional<ShardMove> best;
  std::uint64_t lowest = *from - *from / 10;
  for (std::size_t i = 0; i < shards.size(); ++i) {
    if (shards[i].server != hottest) continue;
    const std::uint64_t left = std::max(*from - shards[i].bytes, *to + shards[i].bytes);
    if (left >= lowest) continue;
    lowest = left;
    best = ShardMove{.shard = static_cast<int>(i), .from = hottest, .to = static_cast<int>(to - servers.begin())};
  }
  return best;
}

}  // namespace hvd
