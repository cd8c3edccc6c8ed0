// Allreduce by reading from, and writing into, the other ranks' memory (peer_memory.h), for tensors in ordinary memory.
//
//   1. Step: every rank publishes the addresses of its tensors.
//   2. Each rank reads its slice of all inputs, block by block, reduces it into its own outputs, and writes each block,
//      which is in its caches, into the outputs of all others.
//   3. Step: all outputs are complete.
//
// Bytes per rank, the kernel's copies included: 2S (n-1)/n + S/n read, of which half is in the caches, and S + S/n
// written, where publishing in chunks takes 3S read and 2S + S/n written; but the kernel looks up every page. Slices
// are those of the ranks' numbers, also where ranks outnumber CPUs. All forms sum in the same order.
#include "ops/host/collectives.h"
#include "ops/host/peer_tensors.h"

namespace hvd {

namespace {

// A block of each rank fits into the second-level cache, and is so large that a system call costs little.
constexpr std::size_t kBlocksBytes = 256 << 10;

void reduce_reading(HostContext& context, const Piece& piece, const TensorLocation* locations, std::int64_t first,
                    std::int64_t end, const Reduction& reduction) {
  std::vector<const void*>& sources = context.sources;
  const std::size_t size = size_of(reduction.dtype), self = static_cast<std::size_t>(context.rank());
  const std::size_t block_bytes = std::max(kBlocksBytes / sources.size() / 64 * 64, HostContext::kScratchBytes);
  const std::int64_t block = elements_in(block_bytes, size);
  context.read_blocks.resize(sources.size() * block_bytes);
  for (; first < end; first += block) {
    const std::int64_t count = std::min(block, end - first);
    const std::uint64_t offset = static_cast<std::uint64_t>(first) * size;
    const std::size_t bytes = static_cast<std::size_t>(count) * size;
    for (std::size_t source = 0; source < sources.size(); ++source) {
      if (source == self) {
        sources[source] = advance(piece.input, first, size);
        continue;
      }
      std::byte* memory = context.read_blocks.data() + source * block_bytes;
      context.peers.read(static_cast<int>(source), locations[source].input + offset, memory, bytes, context.describe);
      sources[source] = memory;
    }
    void* const output = advance(piece.output, first, size);
    fold(context, reduction, reduction.dtype, output, static_cast<std::size_t>(count));
    for (std::size_t distance = 1; distance < sources.size(); ++distance) {
      const std::size_t peer = (self + distance) % sources.size();
      write_to_peer(context, static_cast<int>(peer), locations[peer].output + offset, output, bytes);
    }
  }
}

}  // namespace

void reading_allreduce(HostContext& context, std::span<const Piece> pieces, const Reduction& reduction,
                       std::int64_t total) {
  const std::size_t row = context.sources.size();
  const std::vector<TensorLocation> locations = published_locations(context, pieces.size());
  const SliceBounds slice = slice_bounds(total, context.rank(), context.ranks(), size_of(reduction.dtype));
  for_pieces(pieces, slice, [&](std::size_t piece, std::int64_t first, std::int64_t end) {
    reduce_reading(context, pieces[piece], &locations[piece * row], first, end, reduction);
  });
  barrier_step(context);
}

}  // namespace hvd
