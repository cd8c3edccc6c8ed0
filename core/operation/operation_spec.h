// The specification of an operation: a plain value, the same from the check of the caller's call (call.h) to the wire,
// by which ranks tell each other what they have submitted.
//
// Two ranks agree on an operation if their specs are equal (agree() in agreement.h) except for what may differ by rank:
// the first dimension in allgather and alltoall, the splits of alltoall, the priority, and what does not matter to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/tensor/collective.h"
#include "core/tensor/tensor.h"

namespace hvd {

struct TensorSpec {
  DType dtype = DType::float32;
  Shape shape;
  bool operator==(const TensorSpec&) const = default;
};

struct OperationSpec {
  std::int32_t process_set = kGlobalProcessSet;
  std::string name;  // unique among a set's operations in flight
  Collective collective = Collective::allreduce;
  ReduceOp op = ReduceOp::sum;
  std::int32_t root = 0;  // broadcast: rank in the set
  double prescale = 1.0;
  double postscale = 1.0;
  std::int32_t priority = 0;         // the highest ready operation goes first; may differ by rank: one rank's counts
  std::int32_t device = -1;          // kCpuDevice or kAccelerator
  std::vector<TensorSpec> tensors;   // more than one: a grouped operation
  std::vector<std::int64_t> splits;  // alltoall: rows for each rank of the set; never empty

  bool operator==(const OperationSpec&) const = default;
};

// Of all tensors; 2^63 - 1 if that is exceeded.
inline std::int64_t bytes_of(const OperationSpec& spec) {
  std::int64_t bytes = 0;
  for (const TensorSpec& tensor : spec.tensors) {
    const auto size = static_cast<std::int64_t>(bytes_of(elements_of(tensor.shape), tensor.dtype));
    if (__builtin_add_overflow(bytes, size, &bytes)) return std::numeric_limits<std::int64_t>::max();
  }
  return bytes;
}

// ---- Names

// Longest name of an operation. Longer ones must be refused at submission: no rank would decode them.
inline constexpr std::size_t kMaxNameBytes = 4096;

// Most ranks of an alltoall. The coordinator's response has a number of rows for each pair of ranks, and is one
// message.
inline constexpr int kMaxAlltoallRanks = 2800;

// The name of a join: a set has one at a time, and ranks that join early have counted fewer operations. No other name
// can be taken while it is in flight.
inline constexpr const char* kJoinName = "<join>";

inline std::size_t hash_of(std::string_view name) { return std::hash<std::string_view>{}(name); }

struct NameHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view name) const { return hash_of(name); }
};

// A map by name, with lookups that do not copy the name.
template <typename T>
using NameMap = std::unordered_map<std::string, T, NameHash, std::equal_to<>>;

// Names that hvd generates for operations without one; the OperationTable assigns them.
inline constexpr std::string_view kGeneratedPrefix = "unnamed.";

// After joins that were given up, numbering restarts with a suffix that counts them: ranks that have not come to that
// join yet still use the numbers before it.
inline std::string suffix_after(std::uint64_t failed_joins) {
  return failed_joins == 0 ? std::string() : ".after.join." + std::to_string(failed_joins);
}

// A name that does not repeat, or not before all ranks have joined.
inline std::string sequential_name(std::uint64_t number, std::uint64_t failed_joins = 0) {
  return std::string(kGeneratedPrefix) + std::to_string(number) + suffix_after(failed_joins);
}

// The name of a synchronous operation after so many counted ones: all operations of a loop share it.
inline std::string synchronous_name(std::uint64_t number, std::uint64_t failed_joins = 0) {
  return std::string(kGeneratedPrefix) + "after." + std::to_string(number) + suffix_after(failed_joins);
}

// The name of a prepared operation without one, for all of its starts.
inline std::string prepared_name(std::uint64_t number) { return "<prepared." + std::to_string(number) + ">"; }

inline bool is_generated_name(std::string_view name) { return name.starts_with(kGeneratedPrefix); }

inline bool is_counted(std::string_view name) {
  return name.size() > kGeneratedPrefix.size() && name.starts_with(kGeneratedPrefix) &&
         name[kGeneratedPrefix.size()] >= '0' && name[kGeneratedPrefix.size()] <= '9';
}

}  // namespace hvd
