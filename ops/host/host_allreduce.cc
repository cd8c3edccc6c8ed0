#include "ops/host/host_communicator.h"

namespace hvd {

namespace {

// A rank that is alone on its host scales and rounds.
void reduce_alone(const Piece& piece, const Reduction& reduction, DType result_type, void* out) {
  const auto elements = static_cast<std::size_t>(piece.elements);
  if (out == nullptr || elements == 0) return;
  if (piece.input == nullptr) {
    fill_identity(result_type, reduction.op, out, elements);
    return;
  }
  const void* const input[] = {piece.input};
  reduce(reduction, reduction.dtype, input, result_type, out, elements);
}

}  // namespace

void HostCommunicator::allreduce(std::span<const Piece> pieces, const Reduction& reduction) {
  check_reduction(reduction.dtype, reduction.op);
  if (ranks() == 1) {
    for (const Piece& piece : pieces) reduce_alone(piece, reduction, reduction.dtype, piece.output);
    return;
  }
  const std::int64_t total = elements_of(pieces);
  const std::int64_t bytes = total * static_cast<std::int64_t>(size_of(reduction.dtype));
  if (total == 0) return;
  window_.begin("allreduce");
  const HostForm form = choose_host_form(facts(), bytes);
  if (form == HostForm::note && !window_.oversubscribed()) return note_allreduce(pieces, reduction, total);
  if (form == HostForm::note || (form == HostForm::by_last && total <= chunk_elements(reduction.dtype))) {
    return allreduce_by_last(pieces, reduction, total);
  }
  const OutputScope scope(*this, bytes);
  if (reach_matters(bytes)) return large_allreduce(pieces, reduction, total);
  chunked_allreduce({PieceCursor(pieces), total, chunk_elements(reduction.dtype)}, pieces, reduction, total);
}

void HostCommunicator::chunked_allreduce(const Publication& publication, std::span<const Piece> pieces,
                                         const Reduction& reduction, std::int64_t total) {
  const std::int64_t bytes = total * static_cast<std::int64_t>(size_of(reduction.dtype));
  if (choose_host_form(facts(), bytes) == HostForm::one_step) {
    one_step_allreduce(publication, pieces, reduction, total);
  } else {
    sliced_allreduce(publication, pieces, reduction, reduction.dtype, total);
  }
}

void HostCommunicator::reduce_to_leader(std::span<const Piece> pieces, const Reduction& reduction) {
  check_reduction(reduction.dtype, reduction.op);
  const DType accumulator = accumulator_of(reduction.dtype);
  Reduction unfinished = reduction;
  unfinished.postscale = 1.0;
  if (ranks() == 1) {
    for (const Piece& piece : pieces) reduce_alone(piece, unfinished, accumulator, piece.output);
    return;
  }
  window_.begin("allreduce");
  const std::int64_t total = elements_of(pieces);
  sliced_allreduce({PieceCursor(pieces), total, elements_in(window_.chunk_bytes(), size_of(accumulator))}, pieces,
                   unfinished, accumulator, total);
}

void HostCommunicator::note_allreduce(std::span<const Piece> pieces, const Reduction& reduction, std::int64_t total) {
  PieceCursor in(pieces), out(pieces);
  window_.open_step();
  pack(in, total, reduction, window_.local_note());
  window_.publish();
  window_.await_all();
  find_notes();
  reduce_from_sources(out, total, reduction);
}

// If ranks share CPUs, their work adds up: one rank does it once, instead of each rank separately.
void HostCommunicator::allreduce_by_last(std::span<const Piece> pieces, const Reduction& reduction,
                                         std::int64_t total) {
  const bool in_note =
      total * static_cast<std::int64_t>(size_of(reduction.dtype)) <= static_cast<std::int64_t>(Window::kNoteBytes);
  PieceCursor in(pieces), out(pieces);
  std::byte* slot = window_.open_step();
  pack(in, total, reduction, in_note ? window_.local_note() : slot);
  std::byte* result = in_note ? window_.common_note() : window_.result();
  if (window_.announce()) {
    if (!window_.declined()) {
      in_note ? find_notes() : find_published(0);
      fold(reduction, reduction.dtype, result, static_cast<std::size_t>(total));
    }
    window_.release();
  }
  window_.await_all();
  unpack(out, total, size_of(reduction.dtype), result);
}

void HostCommunicator::one_step_allreduce(Publication publication, std::span<const Piece> pieces,
                                          const Reduction& reduction, std::int64_t total) {
  PieceCursor out(pieces);
  if (publication.left == total) publish_next(publication, reduction);
  for (std::int64_t left = total; left > 0;) {
    const std::int64_t count = std::min(publication.chunk, left);
    window_.await_all();
    find_published(0);
    reduce_from_sources(out, count, reduction);
    publish_next(publication, reduction);
    left -= count;
  }
}

// Publishes the next chunk before awaiting the result of this one: some ranks pack while others still reduce.
void HostCommunicator::sliced_allreduce(Publication publication, std::span<const Piece> outputs,
                                        const Reduction& reduction, DType result_type, std::int64_t total) {
  PieceCursor out(outputs);
  if (publication.left == total) publish_next(publication, reduction);
  for (std::int64_t left = total; left > 0;) {
    const std::int64_t count = std::min(publication.chunk, left);
    window_.await_all();
    const std::byte* result = reduce_slices(reduction, result_type, count);
    publish_next(publication, reduction);
    window_.await_reduction();
    unpack(out, count, size_of(result_type), result);
    left -= count;
  }
}

const std::byte* HostCommunicator::reduce_slices(const Reduction& reduction, DType result_type, std::int64_t count) {
  const std::size_t in_size = size_of(reduction.dtype), out_size = size_of(result_type);
  window_.open_reduction();
  while (const auto slice = window_.take_slice()) {
    const SliceBounds bounds = slice_bounds(count, *slice, window_.slices(), out_size);
    publish_blocks(bounds, out_size, window_.result(), [&](std::size_t first, std::size_t elements) {
      find_published(first * in_size);
      fold(reduction, result_type, scratch_, elements);
    });
    window_.finish_slice();
  }
  return window_.result();
}

}  // namespace hvd
