// The ways of an allreduce over a transport, and which of them is taken. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "core/tensor/dtype.h"

namespace hvd {

enum class AllreduceAlgorithm : std::uint8_t { one_shot, bruck, direct, halving_doubling, ring };

const char* algorithm_name(AllreduceAlgorithm algorithm);

// The type in which a rank's values of tensors of `dtype` go into the algorithm: their own where they are sent to
// whoever reduces them, else, where partial sums travel, the accumulators'.
DType value_type_of(AllreduceAlgorithm algorithm, DType dtype);

struct AllreduceSize {
  std::size_t bytes = 0;  // of all tensors together
  int ranks = 1;
};

// Reads only what the ranks have agreed on, so that all of them choose alike.
using ChooseAllreduce = std::function<AllreduceAlgorithm(const AllreduceSize& size)>;

// By fixed thresholds. Deterministic: only algorithms whose results have the same bits.
ChooseAllreduce choose_by_size(bool deterministic);

}  // namespace hvd
