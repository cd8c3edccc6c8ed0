// The collectives of one host's ranks through shared memory.
//
// Each has its own form over the window (window.h), and each walks the tensors as one sequence of elements: copying a
// chunk of it into the own slot is packing and publishing at once, and results go from shared memory straight to the
// outputs. There is no fusion buffer, and a chunk stays in the second-level cache from the first copy to the last.
//
//   allreduce, 2 ranks or little data   one step a chunk: publish, everyone reduces everything.     S + nS read
//   allreduce otherwise                 publish; each reduces a slice for all; gather the result.   S + S + S read
//   reducescatter                       publish in one block for each rank; each reduces its own.   S + S read
//   allgather, alltoall                 publish; copy what is for this rank.
//   broadcast                           the root publishes; the others copy.
// (S: bytes of all tensors. Bytes read per rank; an allreduce through pairwise messages reads about twice as much.)
//
// Sums are taken in rank order, element by element, so that a result depends neither on who reduces nor on how tensors
// are fused or cut.
//
// Engine thread only. Inputs may be outputs, or lie in an allgather's output where they belong. A joined rank (null
// input) takes part as if it had the operation's identity in its tensors. Lists of counts are those of CollectiveCall.
// Throws what Window throws; then the group may only be destroyed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/collective/collective_call.h"
#include "ops/host/piece_cursor.h"
#include "ops/host/publishing_copy.h"
#include "ops/host/window.h"
#include "ops/reduction/reduce.h"

namespace hvd {

class HostGroup {
 public:
  using Counts = std::vector<std::vector<std::int64_t>>;

  static std::size_t region_bytes(int ranks, std::size_t chunk_bytes) {
    return Window::region_bytes(ranks, chunk_bytes);
  }

  // As Window's constructor, whose parameters these are; returns when all ranks of the host are here.
  HostGroup(std::span<std::byte> region, int rank, int ranks, const WindowOptions& options, const AbortFlag* abort,
            Window::Describe describe);

  int rank() const { return window_.rank(); }
  int ranks() const { return window_.ranks(); }

  void allreduce(std::span<const Piece> pieces, const Reduction& reduction);
  void broadcast(std::span<const Piece> pieces, DType dtype, int root);
  void allgather(std::span<const Piece> pieces, const Counts& counts, DType dtype);
  void reducescatter(std::span<const Piece> pieces, const Counts& counts, const Reduction& reduction);
  void alltoall(const Piece& piece, const Counts& counts, DType dtype);
  void barrier();

  // First half of an allreduce over several hosts: the reduction of all pieces, as accumulators without postscale, in
  // `accumulators` of the leader (local rank 0), one piece after the other. Null on the other ranks.
  void reduce_to_leader(std::span<const Piece> pieces, const Reduction& reduction, void* accumulators);
  // Second half: a broadcast from the leader.
  void broadcast_from_leader(std::span<const Piece> pieces, DType dtype);

 private:
  static constexpr std::size_t kScratchBytes = 16 << 10;

  void publish_chunks(std::span<const Piece> pieces, DType dtype, int root);

  // allreduce (host_allreduce.cc)
  void one_step_allreduce(std::span<const Piece> pieces, const Reduction& reduction, std::int64_t total);
  void sliced_allreduce(std::span<const Piece> inputs, std::span<const Piece> outputs, const Reduction& reduction,
                        DType result_type, std::int64_t total);
  void reduce_slices(const Reduction& reduction, DType result_type, std::int64_t count);

  // Whole cache lines of elements that fit into `bytes`.
  static std::int64_t elements_in(std::size_t bytes, std::size_t element_size);
  // The next `count` elements into the own slot at `destination`, joined ranks' as identity.
  void pack(PieceCursor& cursor, std::int64_t count, const Reduction& reduction, std::byte* destination);
  // The next `count` elements from `source` to where they are wanted.
  static void unpack(PieceCursor& cursor, std::int64_t count, std::size_t element_size, const std::byte* source);
  // The next `count` elements, reduced from all ranks' slots at `offset` bytes straight into the outputs.
  void reduce_from_slots(PieceCursor& cursor, std::int64_t count, const Reduction& reduction, std::size_t offset);

  Window window_;
  PublishingCopy publishing_;          // into own slots
  PublishingCopy publishing_results_;  // from scratch_, in the first-level cache
  std::vector<const void*> sources_;   // one for each rank
  alignas(64) std::byte scratch_[kScratchBytes];
};

}  // namespace hvd
