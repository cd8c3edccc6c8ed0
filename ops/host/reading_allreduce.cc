// Allreduce by reading the other ranks' memory (peer_memory.h), for tensors in ordinary memory.
//
//   1. Step: every rank publishes the addresses of its tensors.
//   2. Reduction: each rank reads its slice of all inputs, block by block, and reduces it into its own outputs.
//   3. Each rank reads the other slices from the outputs of the ranks that reduced them.
//   4. Step: no rank continues, and changes its outputs, before all ranks have read them.
//
// Bytes per rank, the kernel's copies included: S + S (n-1)/n read and as much written, where publishing in chunks
// takes 3S read and 2S + S/n written; but the kernel looks up every page. All forms sum in the same order.
#include <algorithm>

#include "ops/host/host_communicator.h"

namespace hvd {

void HostCommunicator::reading_allreduce(std::span<const Piece> pieces, const Reduction& reduction,
                                         std::int64_t total) {
  const std::size_t size = size_of(reduction.dtype);
  const std::vector<Place> places = published_places(pieces.size());
  const auto for_slice = [&](int slice, const auto& visit) {
    for_pieces(pieces, slice_bounds(total, slice, ranks(), size), visit);
  };
  window_.open_reduction();
  for_slice(rank(), [&](std::size_t piece, std::int64_t first, std::int64_t end) {
    reduce_reading(pieces[piece], &places[piece * sources_.size()], first, end, reduction);
  });
  window_.finish_slice();
  window_.await_reduction();
  for (int distance = 1; distance < ranks(); ++distance) {  // each rank starts with a different source
    const int owner = (rank() + distance) % ranks();
    for_slice(owner, [&](std::size_t piece, std::int64_t first, std::int64_t end) {
      const Place& place = places[piece * sources_.size() + static_cast<std::size_t>(owner)];
      peers_.read(owner, place.output + static_cast<std::uint64_t>(first) * size,
                  advance(pieces[piece].output, first, size), static_cast<std::size_t>(end - first) * size,
                  window_.describe());
    });
  }
  meet();
}

void HostCommunicator::reduce_reading(const Piece& piece, const Place* places, std::int64_t first, std::int64_t end,
                                      const Reduction& reduction) {
  const std::size_t size = size_of(reduction.dtype), self = static_cast<std::size_t>(rank());
  const std::int64_t block = elements_in(kReadBytes, size);
  read_.resize(sources_.size() * kReadBytes);
  for (; first < end; first += block) {
    const std::int64_t count = std::min(block, end - first);
    for (std::size_t source = 0; source < sources_.size(); ++source) {
      if (source == self) {
        sources_[source] = advance(piece.input, first, size);
        continue;
      }
      std::byte* memory = read_.data() + source * kReadBytes;
      peers_.read(static_cast<int>(source), places[source].input + static_cast<std::uint64_t>(first) * size, memory,
                  static_cast<std::size_t>(count) * size, window_.describe());
      sources_[source] = memory;
    }
    fold(reduction, reduction.dtype, advance(piece.output, first, size), static_cast<std::size_t>(count));
  }
}

}  // namespace hvd
