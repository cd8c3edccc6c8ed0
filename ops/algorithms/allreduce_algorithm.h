// The ways of an allreduce over a transport. Which of them is taken, ops/choice says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>

#include "core/tensor/dtype.h"

namespace hvd {

enum class AllreduceAlgorithm : std::uint8_t { one_shot, bruck, direct, halving_doubling, ring };

inline constexpr AllreduceAlgorithm kAllreduceAlgorithms[] = {
    AllreduceAlgorithm::one_shot, AllreduceAlgorithm::bruck, AllreduceAlgorithm::direct,
    AllreduceAlgorithm::halving_doubling, AllreduceAlgorithm::ring};
static_assert(std::size(kAllreduceAlgorithms) == static_cast<std::size_t>(AllreduceAlgorithm::ring) + 1);

const char* algorithm_name(AllreduceAlgorithm algorithm);

// The type in which a rank's values of tensors of `dtype` go into the algorithm: their own where they are sent to
// whoever reduces them, else, where partial sums travel, the accumulators'.
DType value_type_of(AllreduceAlgorithm algorithm, DType dtype);

// Whether sums are taken in the canonical order (sliced_reduction.h), which all such algorithms have the same bits
// from.
bool keeps_order(AllreduceAlgorithm algorithm);

struct AllreduceSize {
  std::size_t bytes = 0;  // of all tensors together
  int ranks = 1;
  // How many times longer partial sums are than the values that ranks send otherwise.
  int widening = 1;
};

// Reads only what the ranks have agreed on, so that all of them choose alike.
using ChooseAllreduce = std::function<AllreduceAlgorithm(const AllreduceSize& size)>;

}  // namespace hvd
