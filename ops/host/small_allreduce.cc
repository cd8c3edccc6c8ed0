// Allreduce of little data in one step.
//
// inline_payload: the data is beside the step's number, in the cache line that every rank waits for anyway, and every
// rank reduces everything. One transfer of a line from each other rank.
//
// by_last: if ranks share CPUs, their work adds up: one rank does it once, instead of each rank separately. The last to
// publish reduces the data of all before it releases them, so that a rank is scheduled once, after everything is done.
#include "ops/host/collectives.h"

namespace hvd {

namespace {

// The last rank to publish reduces what find_sources() finds into `result`, before it releases the others.
void publish_by_last(HostContext& context, const Reduction& reduction, std::int64_t total, const auto& find_sources,
                     std::byte* result) {
  context.window.publish([&] {
    find_sources();
    fold(context, reduction, reduction.dtype, result, static_cast<std::size_t>(total));
  });
}

}  // namespace

void inline_payload_allreduce(HostContext& context, std::span<const Piece> pieces, const Reduction& reduction,
                              std::int64_t total) {
  begin_inline_payload_allreduce(context, pieces, reduction, total);
  finish_inline_payload_allreduce(context, pieces, reduction, total);
}

void begin_inline_payload_allreduce(HostContext& context, std::span<const Piece> pieces, const Reduction& reduction,
                                    std::int64_t total) {
  Window& window = context.window;
  PieceCursor in(pieces);
  window.open_step();
  pack(context, in, total, reduction, window.local_payload());
  if (!window.oversubscribed()) return window.publish();
  publish_by_last(
      context, reduction, total, [&] { find_payloads(context); }, window.common_payload());
}

void finish_inline_payload_allreduce(HostContext& context, std::span<const Piece> pieces, const Reduction& reduction,
                                     std::int64_t total) {
  Window& window = context.window;
  PieceCursor out(pieces);
  window.await_all();
  if (window.oversubscribed()) return unpack(context, out, total, size_of(reduction.dtype), window.common_payload());
  find_payloads(context);
  reduce_from_sources(context, out, total, reduction);
}

void by_last_allreduce(HostContext& context, std::span<const Piece> pieces, const Reduction& reduction,
                       std::int64_t total) {
  Window& window = context.window;
  PieceCursor in(pieces), out(pieces);
  pack(context, in, total, reduction, window.open_step());
  std::byte* const result = window.reduction().result();
  publish_by_last(
      context, reduction, total, [&] { find_published(context, 0); }, result);
  window.await_all();
  unpack(context, out, total, size_of(reduction.dtype), result);
}

}  // namespace hvd
