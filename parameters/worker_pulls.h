// What each worker has pulled from a table: at which version, hence how stale its pushes are, and, where the table has
// delay compensation, a copy of the rows. Pure; one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "parameters/row_table.h"

namespace hvd {

// How stale pushes were: the number of updates that the table's rows on this shard have had since the worker's pull.
class Staleness {
 public:
  void add(std::uint64_t updates);
  std::uint64_t median() const;
  std::uint64_t worst() const { return worst_; }

 private:
  static constexpr std::size_t kExact = 256;  // larger ones count as this
  std::array<std::uint64_t, kExact + 1> counts_{};
  std::uint64_t total_ = 0;
  std::uint64_t worst_ = 0;
};

class WorkerPulls {
 public:
  explicit WorkerPulls(std::size_t width) : width_(width) {}

  // Of the copies, and what copies of these rows take besides.
  std::size_t bytes() const;
  std::size_t bytes_of_more(std::uint32_t worker, std::span<const std::uint64_t> keys) const;

  // The worker has pulled at this version of the table.
  void pulled(std::uint32_t worker, std::uint64_t version);
  // It has pushed at this one.
  void pushed(std::uint32_t worker, std::uint64_t version);
  const Staleness& staleness() const { return staleness_; }

  // Copies rows that the worker has pulled. Throws std::bad_alloc.
  void keep(std::uint32_t worker, std::span<const std::uint64_t> keys, const float* values);
  // The rows as the worker last pulled them; null if it has pulled none.
  const RowTable* rows(std::uint32_t worker) const;

  void forget(std::uint32_t worker);

 private:
  const std::size_t width_;
  std::vector<std::uint64_t> versions_;     // by worker: at its last pull, or kNever
  std::map<std::uint32_t, RowTable> rows_;  // by worker
  Staleness staleness_;
};

}  // namespace hvd
