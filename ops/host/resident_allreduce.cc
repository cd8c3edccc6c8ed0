// Allreduce of tensors that are all in the arena, in two passes over the data: each rank takes slices, reduces them
// directly from all ranks' tensors, and writes the result directly into all of them.
//
//   1. Step: every rank publishes where its tensors are in its part of the arena, and thereby that they are ready.
//   2. Reduction: slice by slice, through the first-level cache, to all ranks. The allreduce ends with it.
//
// Bytes per rank: S read (1/n of each rank's tensors) and S written (1/n into each rank's), where publishing in chunks
// takes 3S read and 2S + S/n written. Sums are taken in rank order, as in all forms.
#include "ops/host/collectives.h"
#include "ops/host/peer_tensors.h"

namespace hvd {

namespace {

// Data from other ranks is checked, and read only once. All memory is mapped before any address is taken, since mapping
// may move earlier mappings.
void find_tensors(HostContext& context, std::span<const Piece> pieces, std::size_t element_size) {
  const std::vector<TensorLocation> locations = published_locations(context, pieces.size());
  const auto ranks = static_cast<std::size_t>(context.ranks());
  const auto for_locations = [&](const auto& body) {
    for (std::size_t i = 0; i < locations.size(); ++i)
      body(pieces[i / ranks], static_cast<int>(i % ranks), locations[i]);
  };
  for_locations([&](const Piece& piece, int rank, const TensorLocation& location) {
    if (rank == context.rank()) return;
    const std::size_t bytes = static_cast<std::size_t>(piece.elements) * element_size;
    context.arena->map_peer(rank, location.input, bytes);
    context.arena->map_peer(rank, location.output, bytes);
  });
  context.resident_inputs.clear();
  context.resident_outputs.clear();
  for_locations([&](const Piece& piece, int rank, const TensorLocation& location) {
    const bool own = rank == context.rank();
    context.resident_inputs.push_back(own ? static_cast<const std::byte*>(piece.input)
                                          : context.arena->at(rank, location.input));
    context.resident_outputs.push_back(own ? static_cast<std::byte*>(piece.output)
                                           : context.arena->at(rank, location.output));
  });
}

void reduce_resident(HostContext& context, std::size_t piece, std::int64_t first, std::int64_t end,
                     const Reduction& reduction) {
  std::vector<const void*>& sources = context.sources;
  const std::size_t size = size_of(reduction.dtype), row = piece * sources.size();
  const auto self = static_cast<std::size_t>(context.rank());
  const std::int64_t block = elements_in(HostContext::kScratchBytes, size);
  for (; first < end; first += block) {
    const auto elements = static_cast<std::size_t>(std::min(block, end - first));
    const std::size_t at = static_cast<std::size_t>(first) * size;
    for (std::size_t rank = 0; rank < sources.size(); ++rank) sources[rank] = context.resident_inputs[row + rank] + at;
    fold(context, reduction, reduction.dtype, context.scratch, elements);
    const PeerWriteScope scope(context);
    for (std::size_t rank = 0; rank < sources.size(); ++rank) {
      if (rank != self) scope.check(static_cast<int>(rank));
      context.publishing_results.copy_chunk(context.resident_outputs[row + rank] + at, context.scratch,
                                            elements * size);
    }
  }
}

}  // namespace

void resident_allreduce(HostContext& context, std::span<const Piece> pieces, const Reduction& reduction,
                        std::int64_t total) {
  const std::size_t size = size_of(reduction.dtype);
  find_tensors(context, pieces, size);
  WindowReduction& slices = context.window.reduction();
  slices.open();
  while (const auto slice = slices.take_slice()) {
    for_pieces(pieces, slice_bounds(total, *slice, slices.slices(), size),
               [&](std::size_t piece, std::int64_t first, std::int64_t end) {
                 reduce_resident(context, piece, first, end, reduction);
               });
    slices.finish_slice();
  }
  slices.await();
}

}  // namespace hvd
