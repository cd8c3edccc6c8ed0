// Allreduce by reading the other ranks' memory (peer_memory.h), for tensors in ordinary memory.
//
//   1. Step: every rank publishes the addresses of its tensors.
//   2. Reduction: each rank reads its slice of all inputs, block by block, and reduces it into its own outputs.
//   3. Each rank reads the other slices from the outputs of the ranks that reduced them.
//   4. Step: no rank continues, and changes its outputs, before all ranks have read them.
//
// Bytes per rank, the kernel's copies included: S + S (n-1)/n read and as much written, where publishing in chunks
// takes 3S read and 2S + S/n written; but the kernel looks up every page. All forms sum in the same order.
#include "ops/host/collectives.h"

namespace hvd {

namespace {

constexpr std::size_t kReadBytes = 64 << 10;

void read_from(HostContext& context, int rank, std::uint64_t address, std::int64_t first, void* target,
               std::int64_t count, std::size_t size) {
  context.peers.read(rank, address + static_cast<std::uint64_t>(first) * size, target,
                     static_cast<std::size_t>(count) * size, context.describe);
}

void reduce_reading(HostContext& context, const Piece& piece, const Place* places, std::int64_t first, std::int64_t end,
                    const Reduction& reduction) {
  std::vector<const void*>& sources = context.sources;
  const std::size_t size = size_of(reduction.dtype), self = static_cast<std::size_t>(context.rank());
  const std::int64_t block = elements_in(kReadBytes, size);
  context.read_blocks.resize(sources.size() * kReadBytes);
  for (; first < end; first += block) {
    const std::int64_t count = std::min(block, end - first);
    for (std::size_t source = 0; source < sources.size(); ++source) {
      if (source == self) {
        sources[source] = advance(piece.input, first, size);
        continue;
      }
      std::byte* memory = context.read_blocks.data() + source * kReadBytes;
      read_from(context, static_cast<int>(source), places[source].input, first, memory, count, size);
      sources[source] = memory;
    }
    fold(context, reduction, reduction.dtype, advance(piece.output, first, size), static_cast<std::size_t>(count));
  }
}

}  // namespace

void reading_allreduce(HostContext& context, std::span<const Piece> pieces, const Reduction& reduction,
                       std::int64_t total) {
  const int ranks = context.ranks();
  const std::size_t size = size_of(reduction.dtype), row = context.sources.size();
  const std::vector<Place> places = published_places(context, pieces.size());
  const auto for_slice = [&](int slice, const auto& visit) {
    for_pieces(pieces, slice_bounds(total, slice, ranks, size), visit);
  };
  WindowReduction& slices = context.window.reduction();
  slices.open();
  for_slice(context.rank(), [&](std::size_t piece, std::int64_t first, std::int64_t end) {
    reduce_reading(context, pieces[piece], &places[piece * row], first, end, reduction);
  });
  slices.finish_slice();
  slices.await();
  for (int distance = 1; distance < ranks; ++distance) {  // each rank starts with a different source
    const int owner = (context.rank() + distance) % ranks;
    for_slice(owner, [&](std::size_t piece, std::int64_t first, std::int64_t end) {
      const std::uint64_t output = places[piece * row + static_cast<std::size_t>(owner)].output;
      read_from(context, owner, output, first, advance(pieces[piece].output, first, size), end - first, size);
    });
  }
  rendezvous(context);
}

}  // namespace hvd
