// Allreduce of little data in one step.
//
// note: the data is beside the step's number, in the cache line that every rank waits for anyway, and every rank
// reduces everything. One transfer of a line from each other rank.
//
// by_last: if ranks share CPUs, their work adds up: one rank does it once, instead of each rank separately. The last to
// publish reduces the data of all before it releases them, so that a rank is scheduled once, after everything is done.
#include "ops/host/collectives.h"

namespace hvd {

void note_allreduce(HostContext& context, std::span<const Piece> pieces, const Reduction& reduction,
                    std::int64_t total) {
  PieceCursor in(pieces), out(pieces);
  context.window.open_step();
  pack(context, in, total, reduction, context.window.local_note());
  context.window.publish();
  context.window.await_all();
  find_notes(context);
  reduce_from_sources(context, out, total, reduction);
}

void by_last_allreduce(HostContext& context, std::span<const Piece> pieces, const Reduction& reduction,
                       std::int64_t total) {
  Window& window = context.window;
  const bool in_note =
      total * static_cast<std::int64_t>(size_of(reduction.dtype)) <= static_cast<std::int64_t>(Window::kNoteBytes);
  PieceCursor in(pieces), out(pieces);
  std::byte* slot = window.open_step();
  pack(context, in, total, reduction, in_note ? window.local_note() : slot);
  std::byte* result = in_note ? window.common_note() : window.reduction().result();
  if (window.announce()) {
    if (!window.declined()) {
      in_note ? find_notes(context) : find_published(context, 0);
      fold(context, reduction, reduction.dtype, result, static_cast<std::size_t>(total));
    }
    window.release();
  }
  window.await_all();
  unpack(context, out, total, size_of(reduction.dtype), result);
}

}  // namespace hvd
