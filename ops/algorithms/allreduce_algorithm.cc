#include "ops/algorithms/allreduce_algorithm.h"

namespace hvd {

namespace {

// What is latency and nothing else. A message costs the processors of both ends about what a fast network takes to
// carry it: beyond three ranks, fewer messages are worth more rounds.
constexpr std::size_t kShortBytes = 4 << 10;
constexpr int kOneShotRanks = 3;
// Beyond so many ranks, a message to each of them costs more than the latencies of the other ways.
constexpr std::size_t kDirectBytes = 256 << 10;
constexpr int kDirectRanks = 16;
constexpr std::size_t kHalvingDoublingBytes = 4 << 20;

}  // namespace

const char* algorithm_name(AllreduceAlgorithm algorithm) {
  switch (algorithm) {
    case AllreduceAlgorithm::one_shot: return "one_shot";
    case AllreduceAlgorithm::bruck: return "bruck";
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
    if (size.bytes <= kShortBytes) {
      return size.ranks <= kOneShotRanks ? AllreduceAlgorithm::one_shot : AllreduceAlgorithm::bruck;
    }
    if (size.bytes <= kDirectBytes && size.ranks <= kDirectRanks) return AllreduceAlgorithm::direct;
    if (!deterministic && size.bytes <= kHalvingDoublingBytes) return AllreduceAlgorithm::halving_doubling;
    return AllreduceAlgorithm::ring;
  };
}

}  // namespace hvd
