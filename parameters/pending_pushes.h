// Buffers the pushes to a synchronous table until every worker has finished the clock; then all pushes of that clock
// are applied together. Pure; one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <vector>

#include "core/net/byte_codec.h"
#include "parameters/table_spec.h"

namespace hvd {

class PendingPushes {
 public:
  struct Push {
    std::vector<std::uint64_t> keys{};
    std::vector<float> gradients{};  // a row for each key

    std::size_t bytes() const { return keys.size() * sizeof(std::uint64_t) + gradients.size() * sizeof(float); }
  };
  using ByWorker = std::map<std::uint32_t, Push>;

  std::size_t bytes() const { return bytes_; }

  // Adds to what the worker has pushed in this clock.
  void add(std::uint32_t clock, std::uint32_t worker, std::span<const std::uint64_t> keys,
           std::span<const float> gradients);
  // Those of the worker from this clock on.
  void drop(std::uint32_t worker, std::uint32_t first_clock);
  // Those of the first clock; null unless it is below `clock`.
  const ByWorker* first_below(std::uint32_t clock) const;
  // The sum of these, by key, in the order of workers. Requires that there are some.
  Push take_first_sum(std::size_t width);

  void write(ByteWriter& to) const;
  // Replaces the pushes of the clocks and workers that are there, if they are to be kept; else only checks them. Throws
  // Internal for malformed bytes.
  void read(ByteReader& from, const TableSpec& spec, bool keep);

 private:
  void count_bytes();

  std::map<std::uint32_t, ByWorker> by_clock_;
  std::size_t bytes_ = 0;
};

// A key, as a part of a state has it. Throws Internal if a dense table has no such row.
std::uint64_t read_key(const TableSpec& spec, ByteReader& from);

}  // namespace hvd
