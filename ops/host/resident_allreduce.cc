// Allreduce of tensors that are all in the arena, in two passes over the data: each rank takes slices, reduces them
// directly from all ranks' tensors, and writes the result directly into all of them.
//
//   1. Step: every rank publishes the places of its tensors in its part of the arena, and thereby that they are ready.
//   2. Reduction: slice by slice, through the first-level cache, to all ranks. The allreduce ends with it.
//
// Bytes per rank: S read (1/n of each rank's tensors) and S written (1/n into each rank's), where publishing in chunks
// takes 3S read and 2S + S/n written. Sums are taken in rank order, as in all forms.
#include <algorithm>

#include "ops/host/host_communicator.h"

namespace hvd {

void HostCommunicator::resident_allreduce(std::span<const Piece> pieces, const Reduction& reduction,
                                          std::int64_t total) {
  find_tensors(pieces, size_of(reduction.dtype));
  window_.open_reduction();
  while (const auto slice = window_.take_slice()) {
    const SliceBounds bounds = slice_bounds(total, *slice, window_.slices(), size_of(reduction.dtype));
    for_pieces(pieces, bounds, [&](std::size_t piece, std::int64_t first, std::int64_t end) {
      reduce_resident(piece, first, end, reduction);
    });
    window_.finish_slice();
  }
  window_.await_reduction();
}

// Data from other ranks is checked, and read only once. All memory is mapped before any address is taken, since mapping
// may move earlier mappings.
void HostCommunicator::find_tensors(std::span<const Piece> pieces, std::size_t element_size) {
  const std::vector<Place> places = published_places(pieces.size());
  const auto for_places = [&](const auto& body) {
    for (std::size_t i = 0; i < places.size(); ++i)
      body(pieces[i / sources_.size()], static_cast<int>(i % sources_.size()), places[i]);
  };
  for_places([&](const Piece& piece, int rank, const Place& place) {
    if (rank == this->rank()) return;
    const std::size_t bytes = static_cast<std::size_t>(piece.elements) * element_size;
    arena_->reach(rank, place.input, bytes);
    arena_->reach(rank, place.output, bytes);
  });
  resident_inputs_.clear();
  resident_outputs_.clear();
  for_places([&](const Piece& piece, int rank, const Place& place) {
    const bool own = rank == this->rank();
    resident_inputs_.push_back(own ? static_cast<const std::byte*>(piece.input) : arena_->at(rank, place.input));
    resident_outputs_.push_back(own ? static_cast<std::byte*>(piece.output) : arena_->at(rank, place.output));
  });
}

void HostCommunicator::reduce_resident(std::size_t piece, std::int64_t first, std::int64_t end,
                                       const Reduction& reduction) {
  const std::size_t size = size_of(reduction.dtype), row = piece * static_cast<std::size_t>(ranks());
  const std::int64_t block = elements_in(kScratchBytes, size);
  for (; first < end; first += block) {
    const auto elements = static_cast<std::size_t>(std::min(block, end - first));
    const std::size_t at = static_cast<std::size_t>(first) * size;
    for (std::size_t rank = 0; rank < sources_.size(); ++rank) sources_[rank] = resident_inputs_[row + rank] + at;
    fold(reduction, reduction.dtype, scratch_, elements);
    for (std::size_t rank = 0; rank < sources_.size(); ++rank) {
      publishing_results_.copy_chunk(resident_outputs_[row + rank] + at, scratch_, elements * size);
    }
  }
}

}  // namespace hvd
