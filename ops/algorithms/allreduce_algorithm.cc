#include "ops/algorithms/allreduce_algorithm.h"

namespace hvd {

namespace {

// Beyond so many ranks, messages to each of them cost more than the latencies of the other ways.
constexpr int kDirectRanks = 16;
constexpr std::size_t kOneShotBytes = 4 << 10;
constexpr std::size_t kDirectBytes = 256 << 10;
constexpr std::size_t kHalvingDoublingBytes = 4 << 20;

}  // namespace

const char* algorithm_name(AllreduceAlgorithm algorithm) {
  switch (algorithm) {
    case AllreduceAlgorithm::one_shot: return "one_shot";
    case AllreduceAlgorithm::direct: return "direct";
    case AllreduceAlgorithm::halving_doubling: return "halving_doubling";
    case AllreduceAlgorithm::ring: return "ring";
  }
  return "unknown";
}

DType value_type_of(AllreduceAlgorithm algorithm, DType dtype) {
  const bool partial_sums_travel =
      algorithm == AllreduceAlgorithm::ring || algorithm == AllreduceAlgorithm::halving_doubling;
  return partial_sums_travel ? accumulator_of(dtype) : dtype;
}

ChooseAllreduce choose_by_size(bool deterministic) {
  return [deterministic](const AllreduceSize& size) {
    if (size.ranks <= kDirectRanks && size.bytes <= kOneShotBytes) return AllreduceAlgorithm::one_shot;
    if (size.ranks <= kDirectRanks && size.bytes <= kDirectBytes) return AllreduceAlgorithm::direct;
    if (!deterministic && size.bytes <= kHalvingDoublingBytes) return AllreduceAlgorithm::halving_doubling;
    return AllreduceAlgorithm::ring;
  };
}

}  // namespace hvd
