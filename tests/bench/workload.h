// One collective on some tensors of float32: the buffers, the call, what goes in and what must come out.
//
// Bytes are those of the larger of a rank's buffers, all tensors together, as NCCL's tests count them: a rank
// contributes that many to an allreduce, a broadcast, an alltoall and a reducescatter, and receives that many from an
// allgather. Values are small whole numbers, so that sums are exact whatever their order.
// mpi_collectives.c has the same work for MPI; the two must change together.
#pragma once

#include <cstdlib>
#include <memory>
#include <vector>

#include "core/execution/tensor_arena.h"
#include "core/operation/collective_call.h"

namespace hvd::bench {

struct WorkloadOptions {
  Collective collective = Collective::allreduce;
  std::size_t bytes = 0;
  int tensors = 1;               // into which the bytes are cut, equally
  bool in_place = false;         // allreduce: results over inputs; a broadcast always is
  TensorArena* arena = nullptr;  // where the tensors lie; null: in ordinary memory
};

class Workload {
 public:
  // Throws InvalidArgument if there are too few bytes, or no such case.
  Workload(const WorkloadOptions& options, int rank, const ProcessSet& everyone);

  // The call, for whoever runs it to number.
  CollectiveCall& call() { return call_; }

  // How many times it may be run after one rewrite(): an allreduce in place adds to its own result.
  int exact_calls() const;

  // Fresh inputs, different in each round, and outputs that no collective can have left.
  void rewrite(int round);
  // Throws Internal, with the place, if the outputs are not those of `calls` calls after rewrite(round).
  void check(int round, int calls) const;

 private:
  struct Release {
    TensorArena* arena;
    void operator()(float* memory) const { arena != nullptr ? arena->free(memory) : std::free(memory); }
  };
  using Buffer = std::unique_ptr<float[], Release>;

  struct Tensor {
    Buffer input;
    Buffer separate_output;  // null: the output is the input

    float* output() const { return separate_output ? separate_output.get() : input.get(); }
  };

  Buffer allocate(std::int64_t elements) const;
  void add_tensor();

  const WorkloadOptions options_;
  const int rank_;
  const int ranks_;
  std::int64_t input_elements_ = 0;   // of a tensor
  std::int64_t output_elements_ = 0;  // of a tensor
  std::vector<Tensor> tensors_;
  CollectiveCall call_;
};

}  // namespace hvd::bench
