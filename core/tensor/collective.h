// The collectives and reduction operators. Wire and ABI values: append only.
#pragma once

#include <cstdint>
#include <optional>

namespace hvd {

enum class Collective : std::uint8_t {
  allreduce = 0,
  allgather = 1,
  broadcast = 2,
  alltoall = 3,
  reducescatter = 4,
  barrier = 5,
  join = 6,
};

constexpr const char* collective_name(Collective collective) {
  switch (collective) {
    case Collective::allreduce: return "allreduce";
    case Collective::allgather: return "allgather";
    case Collective::broadcast: return "broadcast";
    case Collective::alltoall: return "alltoall";
    case Collective::reducescatter: return "reducescatter";
    case Collective::barrier: return "barrier";
    case Collective::join: return "join";
  }
  return "unknown";
}

// Converts a value from the wire or a caller: empty if out of range.
constexpr std::optional<Collective> collective_from(std::int64_t value) {
  if (value < 0 || value > static_cast<int>(Collective::join)) return std::nullopt;
  return static_cast<Collective>(value);
}

// Values are Horovod's: scripts pass them as plain integers.
enum class ReduceOp : std::uint8_t { average = 0, sum = 1, adasum = 2, min = 3, max = 4, product = 5 };

constexpr const char* reduce_op_name(ReduceOp op) {
  switch (op) {
    case ReduceOp::average: return "average";
    case ReduceOp::sum: return "sum";
    case ReduceOp::adasum: return "adasum";
    case ReduceOp::min: return "min";
    case ReduceOp::max: return "max";
    case ReduceOp::product: return "product";
  }
  return "unknown";
}

// As collective_from().
constexpr std::optional<ReduceOp> reduce_op_from(std::int64_t value) {
  if (value < 0 || value > static_cast<int>(ReduceOp::product)) return std::nullopt;
  return static_cast<ReduceOp>(value);
}

}  // namespace hvd
