// The algorithms of an allreduce over a transport, by name, and a call of one. ops/choice chooses between them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>

#include "core/tensor/dtype.h"
#include "ops/algorithms/sliced_reduction.h"

namespace hvd {

enum class AllreduceAlgorithm : std::uint8_t { one_shot, bruck, direct, halving_doubling, ring };

inline constexpr AllreduceAlgorithm kAllreduceAlgorithms[] = {
    AllreduceAlgorithm::one_shot, AllreduceAlgorithm::bruck, AllreduceAlgorithm::direct,
    AllreduceAlgorithm::halving_doubling, AllreduceAlgorithm::ring};
static_assert(std::size(kAllreduceAlgorithms) == static_cast<std::size_t>(AllreduceAlgorithm::ring) + 1);

const char* algorithm_name(AllreduceAlgorithm algorithm);

// The type of the values with which a rank enters the algorithm, for tensors of `dtype`: their own type if values are
// sent directly to the ranks that reduce them; the accumulator type if partial sums are sent.
DType value_type_of(AllreduceAlgorithm algorithm, DType dtype);

// Whether sums are taken in the canonical order (sliced_reduction.h): all such algorithms produce the same bits.
bool keeps_order(AllreduceAlgorithm algorithm);

struct AllreduceSize {
  std::size_t bytes = 0;  // of all tensors together
  int ranks = 1;
  // The size of partial sums divided by the size of the values that ranks send otherwise.
  int widening = 1;
};

// Must depend only on values that the ranks have agreed on, so that all of them choose the same algorithm.
using ChooseAllreduce = std::function<AllreduceAlgorithm(const AllreduceSize& size)>;

// Values have the type value_type_of(algorithm), or are accumulators.
void run_allreduce(AllreduceAlgorithm algorithm, const SlicedReduction& work);

}  // namespace hvd
