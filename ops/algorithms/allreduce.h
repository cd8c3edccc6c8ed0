// The algorithms of an allreduce over a transport, by name, and a call of one. ops/choice chooses between them.
#pragma once

#include <algorithm>
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

// The algorithms, a file each. Values of either type, unless it says otherwise. Messages have the step of the tag, and
// the following ones.
void one_shot_allreduce(const SlicedReduction& work);
void bruck_allreduce(const SlicedReduction& work);

// The number of concurrent steps of a direct exchange with slices of `slice_bytes`.
constexpr std::size_t direct_steps_in_flight(std::size_t slice_bytes) {
  constexpr std::size_t kMost = 4, kBytes = 64 << 10;
  return std::clamp<std::size_t>(kBytes / std::max<std::size_t>(slice_bytes, 1), 1, kMost);
}
void direct_allreduce(const SlicedReduction& work);

// Values are accumulators; all of them are made ready before the exchange, and complete after it.
void halving_doubling_allreduce(const SlicedReduction& work);

inline constexpr std::int64_t kRingSegmentBytes = 64 << 10;

// Allreduce: reduce-scatter, then allgather, as one pipeline. Values are accumulators. Slices may be of any size.
// Messages take steps from tag.step upwards.
//
// Steps: 2(N-1), each waiting for a neighbour only. Bytes sent and received per rank: 2(N-1)/N of the buffer, the
// minimum of any allreduce; 16-bit floats are sent as float32 in the first half and in 16 bits in the second. Time:
// 2(N-1) latencies + 2(N-1)/N * S / bandwidth; best for large buffers.
// Source: P. Patarasuk and X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009.
void ring_allreduce(const SlicedReduction& work);

// The first half: only the slice at this rank's position gets results and is made complete. Steps: N-1. Bytes sent per
// rank: all slices but its own, (N-1)/N of the buffer if they are equal.
void ring_reducescatter(const SlicedReduction& work);

}  // namespace hvd
