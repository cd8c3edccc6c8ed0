// The collectives, the reduction operators, and the process sets that perform them.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <vector>

namespace hvd {

// Wire and ABI values: append only.
enum class Collective : std::uint8_t {
  allreduce = 0,
  allgather = 1,
  broadcast = 2,
  alltoall = 3,
  reducescatter = 4,
  barrier = 5,
  join = 6,
};

// By value.
inline constexpr const char* kCollectiveNames[] = {"allreduce",     "allgather", "broadcast", "alltoall",
                                                   "reducescatter", "barrier",   "join"};

constexpr const char* collective_name(Collective collective) {
  const auto value = static_cast<std::size_t>(collective);
  return value < std::size(kCollectiveNames) ? kCollectiveNames[value] : "unknown";
}

// Whether ranks may submit different first dimensions (and splits).
constexpr bool differs_by_rank(Collective collective) {
  return collective == Collective::allgather || collective == Collective::alltoall;
}

// Converts a value from the wire or a caller: empty if out of range.
constexpr std::optional<Collective> collective_from(std::int64_t value) {
  if (value < 0 || value > static_cast<int>(Collective::join)) return std::nullopt;
  return static_cast<Collective>(value);
}

// Wire and ABI values, which are Horovod's: scripts pass them as plain integers.
enum class ReduceOp : std::uint8_t { average = 0, sum = 1, adasum = 2, min = 3, max = 4, product = 5 };

// By value.
inline constexpr const char* kReduceOpNames[] = {"average", "sum", "adasum", "min", "max", "product"};

constexpr const char* reduce_op_name(ReduceOp op) {
  const auto value = static_cast<std::size_t>(op);
  return value < std::size(kReduceOpNames) ? kReduceOpNames[value] : "unknown";
}

// As collective_from().
constexpr std::optional<ReduceOp> reduce_op_from(std::int64_t value) {
  if (value < 0 || value > static_cast<int>(ReduceOp::product)) return std::nullopt;
  return static_cast<ReduceOp>(value);
}

inline constexpr std::int32_t kGlobalProcessSet = 0;

// An ordered subset of the ranks that performs collectives together (MPI: communicator).
struct ProcessSet {
  std::int32_t id = kGlobalProcessSet;
  std::vector<int> ranks;  // global ranks, ascending

  int size() const { return static_cast<int>(ranks.size()); }

  // Position of a global rank within the set; empty if it is not a member.
  std::optional<int> rank_of(int global_rank) const {
    auto it = std::lower_bound(ranks.begin(), ranks.end(), global_rank);
    if (it == ranks.end() || *it != global_rank) return std::nullopt;
    return static_cast<int>(it - ranks.begin());
  }
};

}  // namespace hvd
