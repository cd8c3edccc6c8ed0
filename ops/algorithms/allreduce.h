// The algorithms over a transport: those of an allreduce, which ops/choice chooses from by their names, with their
// arguments and a function that runs one; and those that only move bytes.
//
// The arguments of an allreduce, and of a reducescatter: N ranks' values, cut into N slices, and hooks that are called
// as values are needed and results are available.
//
// The canonical order. The values of slice h are folded at the positions h+1, h+2, ..., h (mod N), in accumulators, and
// then scaled and rounded once. It is the order of a ring (ring.cc), and every algorithm that keeps to it produces
// the same bits as the ring: the choice of algorithm may depend on size and fusion without affecting the result.
//
// The order of use. Position p begins to use its own values in the order of slices p-1, p-2, ..., p, and has results in
// the order p, p-1, ..., p+1, ascending within each. An algorithm calls ready() before it reads a range for the first
// time and complete() when the results of a range are available, each element once. Completions keep to the order; a
// ring, which sends slice p-1 while p-2 arrives, makes both ready alternately. So the caller can fill values while
// earlier ones are being sent, and use results while later ones are.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <span>
#include <vector>

#include "core/operation/collective_call.h"
#include "core/tensor/tensor.h"
#include "ops/algorithms/packing.h"
#include "ops/reduction/reduce.h"
#include "ops/transport/transport.h"

namespace hvd {

struct SlicedReduction {
  using Hook = std::function<void(std::int64_t begin, std::int64_t end)>;  // a range of elements, not empty

  Transport& transport;
  std::span<const int> members;  // global ranks, by position
  int position = 0;              // of this rank in members

  // The prescale applies to values of the tensors' own type; values of the accumulator type are already prescaled.
  Reduction reduction;
  DType value_type = DType::float32;  // reduction.dtype or its accumulator type
  // In both buffers, slice h is the elements [slice_bounds[h], slice_bounds[h + 1]). Values are scratch memory of the
  // algorithm once they are ready. Results are of reduction.dtype, and may be the same memory if the types are equal.
  std::byte* values = nullptr;
  std::byte* results = nullptr;
  std::span<const std::int64_t> slice_bounds;  // members.size() + 1, equal on all members

  Tag tag;  // of the first message; the step is counted up from there
  Deadline deadline;

  Hook ready = {};  // may be empty
  Hook complete = {};

  int ranks() const { return static_cast<int>(members.size()); }
  int member(int at) const { return members[static_cast<std::size_t>(at)]; }
  // Positions, and therefore slices, are cyclic.
  int around(int at) const { return (at % ranks() + ranks()) % ranks(); }
  std::int64_t begin_of(int slice) const { return slice_bounds[static_cast<std::size_t>(slice)]; }
  std::int64_t end_of(int slice) const { return slice_bounds[static_cast<std::size_t>(slice) + 1]; }
  std::int64_t elements() const { return slice_bounds.back(); }
  DType accumulator() const { return accumulator_of(reduction.dtype); }

  std::span<std::byte> values_in(std::int64_t begin, std::int64_t end) const {
    return range(values, value_type, begin, end);
  }

  std::span<std::byte> results_in(std::int64_t begin, std::int64_t end) const {
    return range(results, reduction.dtype, begin, end);
  }

  void make_ready(std::int64_t begin, std::int64_t end) const {
    if (ready && begin < end) ready(begin, end);
  }

  void make_complete(std::int64_t begin, std::int64_t end) const {
    if (complete && begin < end) complete(begin, end);
  }

  // All slices, in the order of use.
  void make_all_ready() const {
    for (int back = 1; back <= ranks(); ++back) {
      const int slice = around(position - back);
      make_ready(begin_of(slice), end_of(slice));
    }
  }

  void make_all_complete() const {
    for (int back = 0; back < ranks(); ++back) {
      const int slice = around(position - back);
      make_complete(begin_of(slice), end_of(slice));
    }
  }

  // Reduces slice `slice` to its results; from[i] is the contribution of position i.
  void fold_slice(int slice, std::span<const std::byte* const> from) const {
    const auto results_of_slice = results_in(begin_of(slice), end_of(slice));
    std::vector<const void*> inputs;
    for (int step = 1; step <= ranks(); ++step) inputs.push_back(from[static_cast<std::size_t>(around(slice + step))]);
    reduce(reduction, value_type, inputs, reduction.dtype, results_of_slice.data(),
           static_cast<std::size_t>(end_of(slice) - begin_of(slice)));
  }

  // Reduces all slices; from[i] is all values of position i.
  void fold_all(std::span<const std::byte* const> from) const {
    for (int slice = 0; slice < ranks(); ++slice) {
      std::vector<const std::byte*> parts(from.begin(), from.end());
      for (const std::byte*& part : parts) part += static_cast<std::size_t>(begin_of(slice)) * size_of(value_type);
      fold_slice(slice, parts);
    }
  }

  // The whole reduction with one member: scales and rounds.
  void reduce_alone() const {
    const std::byte* const own[] = {values};
    make_all_ready();
    fold_slice(0, own);
    make_all_complete();
  }

 private:
  static std::span<std::byte> range(std::byte* memory, DType dtype, std::int64_t begin, std::int64_t end) {
    const std::size_t size = size_of(dtype);
    return {memory + static_cast<std::size_t>(begin) * size, static_cast<std::size_t>(end - begin) * size};
  }
};

enum class AllreduceAlgorithm : std::uint8_t { one_shot, bruck, direct, halving_doubling, ring };

inline constexpr AllreduceAlgorithm kAllreduceAlgorithms[] = {
    AllreduceAlgorithm::one_shot, AllreduceAlgorithm::bruck, AllreduceAlgorithm::direct,
    AllreduceAlgorithm::halving_doubling, AllreduceAlgorithm::ring};
static_assert(std::size(kAllreduceAlgorithms) == static_cast<std::size_t>(AllreduceAlgorithm::ring) + 1);

constexpr const char* algorithm_name(AllreduceAlgorithm algorithm) {
  switch (algorithm) {
    case AllreduceAlgorithm::one_shot: return "one_shot";
    case AllreduceAlgorithm::bruck: return "bruck";
    case AllreduceAlgorithm::direct: return "direct";
    case AllreduceAlgorithm::halving_doubling: return "halving_doubling";
    case AllreduceAlgorithm::ring: return "ring";
  }
  return "unknown";
}

// The type of the values with which a rank enters the algorithm, for tensors of `dtype`: their own type if values are
// sent directly to the ranks that reduce them; the accumulator type if partial sums are sent.
constexpr DType value_type_of(AllreduceAlgorithm algorithm, DType dtype) {
  const bool sends_partial_sums =
      algorithm == AllreduceAlgorithm::ring || algorithm == AllreduceAlgorithm::halving_doubling;
  return sends_partial_sums ? accumulator_of(dtype) : dtype;
}

// Whether sums are taken in the canonical order: all such algorithms produce the same bits.
constexpr bool keeps_order(AllreduceAlgorithm algorithm) { return algorithm != AllreduceAlgorithm::halving_doubling; }

struct AllreduceSize {
  std::size_t bytes = 0;  // of all tensors together
  int ranks = 1;
  // The size of partial sums divided by the size of the values that ranks send otherwise.
  int widening = 1;
};

// Must depend only on values that the ranks have agreed on, so that all of them choose the same algorithm.
using ChooseAllreduce = std::function<AllreduceAlgorithm(const AllreduceSize& size)>;

// The algorithms, defined in gathering_allreduce.cc (one_shot, bruck), direct_allreduce.cc,
// halving_doubling_allreduce.cc and ring.cc. They accept values of either type unless the comment says otherwise. Their
// messages have the step of the tag, and the following ones.
void one_shot_allreduce(const SlicedReduction& args);
void bruck_allreduce(const SlicedReduction& args);

// The number of concurrent steps of a direct exchange with slices of `slice_bytes`.
constexpr std::size_t direct_steps_in_flight(std::size_t slice_bytes) {
  constexpr std::size_t kMost = 4, kBytes = 64 << 10;
  return std::clamp<std::size_t>(kBytes / std::max<std::size_t>(slice_bytes, 1), 1, kMost);
}
void direct_allreduce(const SlicedReduction& args);

// Values are accumulators; all of them are made ready before the exchange, and complete after it.
void halving_doubling_allreduce(const SlicedReduction& args);

inline constexpr std::int64_t kRingSegmentBytes = 64 << 10;

// Allreduce: reduce-scatter, then allgather, as one pipeline. Values are accumulators. Slices may be of any size.
// Messages take steps from tag.step upwards.
//
// Steps: 2(N-1), each waiting for a neighbour only. Bytes sent and received per rank: 2(N-1)/N of the buffer, the
// minimum of any allreduce; 16-bit floats are sent as float32 in the first half and in 16 bits in the second. Time:
// 2(N-1) latencies + 2(N-1)/N * S / bandwidth; best for large buffers.
// Source: P. Patarasuk and X. Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009.
void ring_allreduce(const SlicedReduction& args);

// Values have the type value_type_of(algorithm), or are accumulators.
inline void run_allreduce(AllreduceAlgorithm algorithm, const SlicedReduction& args) {
  switch (algorithm) {
    case AllreduceAlgorithm::one_shot: return one_shot_allreduce(args);
    case AllreduceAlgorithm::bruck: return bruck_allreduce(args);
    case AllreduceAlgorithm::direct: return direct_allreduce(args);
    case AllreduceAlgorithm::halving_doubling: return halving_doubling_allreduce(args);
    case AllreduceAlgorithm::ring: return ring_allreduce(args);
  }
}

// The first half of a ring: only the slice at this rank's position gets results and is made complete. Steps: N-1. Bytes
// sent per rank: all slices but its own, (N-1)/N of the buffer if they are equal.
void ring_reducescatter(const SlicedReduction& args);

// ---- Adasum (adasum.cc), over any backend's exchanges.

// The exchanges that Adasum needs from a backend. Blocks of a buffer are the bytes [bounds[r], bounds[r + 1]), one for
// each rank of the set; bounds are the same on all ranks.
class SliceExchange {
 public:
  virtual ~SliceExchange() = default;

  // Sends block r to rank r. `own` receives a block of this rank's size from each rank, in rank order.
  virtual void scatter(const std::byte* blocks, std::span<const std::int64_t> bounds, std::byte* own) = 0;

  // Block r belongs to rank r. On return every block contains its owner's data.
  virtual void gather(std::byte* blocks, std::span<const std::int64_t> bounds) = 0;
};

// Whether the call is an allreduce with Adasum, of floats.
bool is_adasum(const CollectiveCall& call);

// `position`: of this rank in the call's set. A joined rank contributes zeros. `scratch` is reserved for the call.
void adasum(const CollectiveCall& call, int position, SliceExchange& exchange, Scratch& scratch,
            InstructionSet instruction_set);

// ---- Collectives that only move bytes between the members of a process set (exchanges.cc).

// The members of a process set in one call. Messages take steps from tag.step upwards.
struct ExchangeContext {
  Transport& transport;
  std::span<const int> members;  // global ranks, by position
  int position;                  // of this rank
  Tag tag;
  Deadline deadline;

  std::size_t index() const { return static_cast<std::size_t>(position); }
};

// Dissemination. Returns on no member before all have called.
void dissemination_barrier(const ExchangeContext& context);

// Along a chain. `members[root]` has the data, all others receive it. The size is the same on all members.
void chain_broadcast(const ExchangeContext& context, int root, std::span<std::byte> data);

// Block r of the buffer, the bytes [block_bounds[r], block_bounds[r + 1]), belongs to position r. On return every block
// contains its owner's data. The bounds are the same on all members.
//
// The second half of a ring (ring.cc). Steps: N-1. Bytes sent per rank: all blocks but the right neighbour's. Blocks
// may differ in size; the time is N-1 times that of the longest block.
void ring_allgather(const ExchangeContext& context, std::byte* buffer, std::span<const std::int64_t> block_bounds);
// By direct exchange: every rank sends its block to every other rank: N-1 times its own block sent, all others'
// received.
void pairwise_allgather(const ExchangeContext& context, std::byte* buffer, std::span<const std::int64_t> block_bounds);

// By direct exchange. Bytes per rank: exactly those it sends and receives.
//
// Block d of the input, the bytes [input_bounds[d], input_bounds[d + 1]), goes to position d; block s of the output
// comes from position s. The block that one rank sends to another must be as long as the other expects; empty blocks
// need no message. Input and output must not overlap.
void pairwise_alltoall(const ExchangeContext& context, const std::byte* input,
                       std::span<const std::int64_t> input_bounds, std::byte* output,
                       std::span<const std::int64_t> output_bounds);

}  // namespace hvd
