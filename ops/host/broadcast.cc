// Broadcast: the root publishes chunk by chunk, the others copy; or, where that is faster, the others read the root's
// memory directly. Chunks are smaller than in other collectives: all ranks are busy only while the root packs one chunk
// and the others unpack another. If they share CPUs, they are busy anyway.
//
// Also the collectives without tensors: a barrier is one step, and an exchange of words is a step with the words beside
// its number.
#include "core/base/error.h"
#include "ops/host/collectives.h"
#include "ops/host/peer_tensors.h"

namespace hvd {

namespace {

void broadcast_in_chunks(HostContext& context, std::span<const Piece> pieces, DType dtype, int root) {
  Window& window = context.window;
  const std::size_t chunk_bytes = window.oversubscribed() ? window.chunk_bytes() : window.chunk_bytes() / 4;
  const std::size_t size = size_of(dtype);
  const bool is_root = context.rank() == root;
  PieceCursor cursor(pieces);
  const std::int64_t chunk = elements_in(chunk_bytes, size);
  for (std::int64_t left = context.ranks() == 1 ? 0 : elements_of(pieces); left > 0;) {
    const std::int64_t count = std::min(chunk, left);
    std::byte* slot = window.open_step();
    // The sum's identity is zero, the value for a root without input.
    if (is_root) pack(context, cursor, count, {.dtype = dtype}, slot);
    window.publish();
    window.await_entry();
    if (!is_root) {
      window.await(root);
      unpack(context, cursor, count, size, window.slot(root));
    }
    left -= count;
  }
}

void broadcast_from(HostContext& context, int root, std::span<const Piece> pieces, DType dtype) {
  const std::size_t size = size_of(dtype);
  const bool is_root = context.rank() == root;
  const std::int64_t bytes = elements_of(pieces) * static_cast<std::int64_t>(size);
  const PathTrials::Alternatives alternatives = move_alternatives(context.shape(), bytes);
  on_fastest_path(context, "broadcast", context.trials.broadcast, bytes, alternatives, [&](DataPath path) {
    std::vector<Move> moves;
    for (std::size_t p = 0; !is_root && p < pieces.size(); ++p) {
      moves.push_back({root, p, 0, pieces[p].output, pieces[p].elements});
    }
    const auto inputs = is_root ? pieces : std::span<const Piece>();
    if (path == DataPath::peer_memory && move_by_reading(context, inputs, moves, size)) return;
    broadcast_in_chunks(context, pieces, dtype, root);
  });
  if (is_root) copy_local_part(pieces, size);
}

}  // namespace

void host_broadcast(HostContext& context, std::span<const Piece> pieces, DType dtype, int root) {
  if (root < 0 || root >= context.ranks()) throw Internal("broadcast: the root is not a rank of this host");
  context.window.waits().begin("broadcast");
  broadcast_from(context, root, pieces, dtype);
}

void broadcast_from_leader(HostContext& context, std::span<const Piece> pieces, DType dtype) {
  context.window.waits().begin("allreduce");
  broadcast_from(context, 0, pieces, dtype);
}

void host_barrier(HostContext& context) {
  context.window.waits().begin("barrier");
  barrier_step(context);
}

std::vector<std::byte> exchange_host_votes(HostContext& context, std::byte own) {
  if (context.ranks() == 1) return {own};
  context.window.waits().begin("asking for a collective");
  return exchange_payloads(context, own);
}

}  // namespace hvd
