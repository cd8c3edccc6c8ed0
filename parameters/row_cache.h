// A worker's cache of one table's rows: keeps pulled rows for some of its clocks, so that it need not pull them again.
// A push invalidates its rows, so that the worker reads its own writes. Used under the client's mutex.
#pragma once

#include <cstddef>
#include <cstdint>
#include <unordered_map>

#include "parameters/row_table.h"

namespace hvd {

class RowCache {
 public:
  // Rows are at most `clocks` old, at least 1; those that are older go by twice that.
  RowCache(std::size_t width, std::uint32_t clocks) : width_(width), clocks_(clocks), rows_(width) {}

  // Copies the row if it is there; counts it as found or missing.
  bool find(std::uint64_t key, std::uint32_t clock, float* to);
  // A row as of the clock at which it was asked for, in the order of the server's answers.
  void keep(std::uint64_t key, std::uint32_t clock, const float* row);
  // Between the two its row is not kept: what is pulled before the push may arrive later.
  void begin_push(std::uint64_t key);
  void end_push(std::uint64_t key);
  // This worker's clock has become this one.
  void advance(std::uint32_t clock);
  // Removes all rows: those at the servers have changed otherwise than by pushes.
  void forget();

  std::uint32_t clocks() const { return clocks_; }
  std::uint64_t found() const { return found_; }
  std::uint64_t missing() const { return missing_; }

 private:
  const std::size_t width_;
  const std::uint32_t clocks_;
  RowTable rows_;                                  // `used`: as of which clock
  std::unordered_map<std::uint64_t, int> pushes_;  // that have no answer, by key
  std::uint32_t swept_ = 0;                        // at this clock
  std::uint64_t found_ = 0, missing_ = 0;
};

}  // namespace hvd
