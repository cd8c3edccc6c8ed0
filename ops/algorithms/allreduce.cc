#include "ops/algorithms/allreduce.h"

#include <vector>

namespace hvd {

namespace {

std::span<std::byte> range(std::byte* memory, DType dtype, std::int64_t begin, std::int64_t end) {
  const std::size_t size = size_of(dtype);
  return {memory + static_cast<std::size_t>(begin) * size, static_cast<std::size_t>(end - begin) * size};
}

}  // namespace

std::span<std::byte> SlicedReduction::values_in(std::int64_t begin, std::int64_t end) const {
  return range(values, value_type, begin, end);
}

std::span<std::byte> SlicedReduction::results_in(std::int64_t begin, std::int64_t end) const {
  return range(results, reduction.dtype, begin, end);
}

void SlicedReduction::make_ready(std::int64_t begin, std::int64_t end) const {
  if (ready && begin < end) ready(begin, end);
}

void SlicedReduction::make_complete(std::int64_t begin, std::int64_t end) const {
  if (complete && begin < end) complete(begin, end);
}

void SlicedReduction::make_all_ready() const {
  for (int back = 1; back <= ranks(); ++back) {
    const int slice = around(position - back);
    make_ready(begin_of(slice), end_of(slice));
  }
}

void SlicedReduction::make_all_complete() const {
  for (int back = 0; back < ranks(); ++back) {
    const int slice = around(position - back);
    make_complete(begin_of(slice), end_of(slice));
  }
}

void SlicedReduction::fold_slice(int slice, std::span<const std::byte* const> from) const {
  const auto results_of_slice = results_in(begin_of(slice), end_of(slice));
  std::vector<const void*> inputs;
  for (int step = 1; step <= ranks(); ++step) inputs.push_back(from[static_cast<std::size_t>(around(slice + step))]);
  reduce(reduction, value_type, inputs, reduction.dtype, results_of_slice.data(),
         static_cast<std::size_t>(end_of(slice) - begin_of(slice)));
}

void SlicedReduction::fold_all(std::span<const std::byte* const> from) const {
  for (int slice = 0; slice < ranks(); ++slice) {
    std::vector<const std::byte*> parts(from.begin(), from.end());
    for (const std::byte*& part : parts) part += static_cast<std::size_t>(begin_of(slice)) * size_of(value_type);
    fold_slice(slice, parts);
  }
}

void SlicedReduction::reduce_alone() const {
  const std::byte* const own[] = {values};
  make_all_ready();
  fold_slice(0, own);
  make_all_complete();
}

void run_allreduce(AllreduceAlgorithm algorithm, const SlicedReduction& work) {
  switch (algorithm) {
    case AllreduceAlgorithm::one_shot: return one_shot_allreduce(work);
    case AllreduceAlgorithm::bruck: return bruck_allreduce(work);
    case AllreduceAlgorithm::direct: return direct_allreduce(work);
    case AllreduceAlgorithm::halving_doubling: return halving_doubling_allreduce(work);
    case AllreduceAlgorithm::ring: return ring_allreduce(work);
  }
}

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

bool keeps_order(AllreduceAlgorithm algorithm) { return algorithm != AllreduceAlgorithm::halving_doubling; }

}  // namespace hvd
