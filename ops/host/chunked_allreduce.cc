// Allreduce through the window, chunk by chunk.
//
// one_step: every rank publishes its chunk, then reduces the chunks of all ranks straight into its outputs. One barrier
// a chunk; with n ranks S + nS bytes read per rank.
//
// sliced: every rank publishes its chunk, reduces one slice of all ranks' chunks for everyone, and copies the result of
// all slices. Two barriers a chunk; 3S bytes read per rank, whatever n. A slice is written block by block through the
// first-level cache: reducing directly into lines that distant CPUs have read is much slower.
//
// Both publish the next chunk before they await the result of this one: some ranks pack while others still reduce.
#include "ops/host/collectives.h"

namespace hvd {

namespace {

void reduce_slice(HostContext& context, const SliceBounds& bounds, const Reduction& reduction, DType result_type,
                  std::byte* result) {
  const std::size_t in_size = size_of(reduction.dtype), out_size = size_of(result_type);
  const std::int64_t block = elements_in(HostContext::kScratchBytes, out_size);
  for (std::int64_t begin = bounds.begin; begin < bounds.end; begin += block) {
    const auto first = static_cast<std::size_t>(begin);
    const auto elements = static_cast<std::size_t>(std::min(block, bounds.end - begin));
    find_published(context, first * in_size);
    fold(context, reduction, result_type, context.scratch, elements);
    context.publishing_results.copy_chunk(result + first * out_size, context.scratch, elements * out_size);
  }
}

// Returns the result, whose reduction must still be awaited.
const std::byte* reduce_slices(HostContext& context, const Reduction& reduction, DType result_type,
                               std::int64_t count) {
  WindowReduction& slices = context.window.reduction();
  slices.open();
  while (const auto slice = slices.take_slice()) {
    reduce_slice(context, slice_bounds(count, *slice, slices.slices(), size_of(result_type)), reduction, result_type,
                 slices.result());
    slices.finish_slice();
  }
  return slices.result();
}

}  // namespace

void one_step_allreduce(HostContext& context, Publication publication, std::span<const Piece> pieces,
                        const Reduction& reduction, std::int64_t total) {
  PieceCursor out(pieces);
  if (publication.left == total) publish_next(context, publication, reduction);
  for (std::int64_t left = total; left > 0;) {
    const std::int64_t count = std::min(publication.chunk, left);
    context.window.await_all();
    find_published(context, 0);
    reduce_from_sources(context, out, count, reduction);
    publish_next(context, publication, reduction);
    left -= count;
  }
}

void sliced_allreduce(HostContext& context, Publication publication, std::span<const Piece> outputs,
                      const Reduction& reduction, DType result_type, std::int64_t total) {
  PieceCursor out(outputs);
  if (publication.left == total) publish_next(context, publication, reduction);
  for (std::int64_t left = total; left > 0;) {
    const std::int64_t count = std::min(publication.chunk, left);
    context.window.await_all();
    const std::byte* result = reduce_slices(context, reduction, result_type, count);
    publish_next(context, publication, reduction);
    context.window.reduction().await();
    unpack(context, out, count, size_of(result_type), result);
    left -= count;
  }
}

}  // namespace hvd
