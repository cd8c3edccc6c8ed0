#include "ops/host/host_group.h"

namespace hvd {

namespace {

// Below this, waiting for each other once more costs more than reducing everything everywhere.
constexpr std::int64_t kOneStepBytes = 16 << 10;
constexpr int kOneStepRanks = 8;

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

// Where slice `slice` of `count` elements begins; whole cache lines but for the last.
std::int64_t slice_begin(std::int64_t count, int slice, int slices, std::size_t element_size) {
  const auto line = static_cast<std::int64_t>(64 / element_size);
  const std::int64_t lines = (count + line - 1) / line;
  return std::min(count, lines * slice / slices * line);
}

}  // namespace

void HostGroup::allreduce(std::span<const Piece> pieces, const Reduction& reduction) {
  check_reduction(reduction.dtype, reduction.op);
  if (ranks() == 1) {
    for (const Piece& piece : pieces) reduce_alone(piece, reduction, reduction.dtype, piece.output);
    return;
  }
  window_.begin("allreduce");
  const std::int64_t total = elements_of(pieces);
  const std::int64_t bytes = total * static_cast<std::int64_t>(size_of(reduction.dtype));
  if (total == 0) return;
  if (bytes <= static_cast<std::int64_t>(Window::kNoteBytes)) {
    note_allreduce(pieces, reduction, total);
  } else if (ranks() == 2 || (bytes <= kOneStepBytes && ranks() <= kOneStepRanks)) {
    one_step_allreduce(pieces, reduction, total);
  } else {
    sliced_allreduce(pieces, pieces, reduction, reduction.dtype, total);
  }
}

void HostGroup::reduce_to_leader(std::span<const Piece> pieces, const Reduction& reduction, void* accumulators) {
  check_reduction(reduction.dtype, reduction.op);
  const DType accumulator = accumulator_of(reduction.dtype);
  Reduction unfinished = reduction;
  unfinished.postscale = 1.0;
  if (ranks() == 1) {
    auto* out = static_cast<std::byte*>(accumulators);
    for (const Piece& piece : pieces) {
      reduce_alone(piece, unfinished, accumulator, out);
      out += static_cast<std::size_t>(piece.elements) * size_of(accumulator);
    }
    return;
  }
  window_.begin("allreduce");
  const Piece result{.input = nullptr, .output = accumulators, .elements = elements_of(pieces)};
  sliced_allreduce(pieces, std::span(&result, 1), unfinished, accumulator, result.elements);
}

void HostGroup::note_allreduce(std::span<const Piece> pieces, const Reduction& reduction, std::int64_t total) {
  PieceCursor in(pieces), out(pieces);
  window_.open_step();
  pack(in, total, reduction, window_.own_note());
  window_.publish();
  window_.await_all();
  for (int rank = 0; rank < ranks(); ++rank) sources_[static_cast<std::size_t>(rank)] = window_.note(rank);
  reduce_from_sources(out, total, reduction);
}

void HostGroup::one_step_allreduce(std::span<const Piece> pieces, const Reduction& reduction, std::int64_t total) {
  PieceCursor in(pieces), out(pieces);
  const std::int64_t chunk = elements_in(window_.chunk_bytes(), size_of(reduction.dtype));
  while (total > 0) {
    const std::int64_t count = std::min(chunk, total);
    pack(in, count, reduction, window_.open_step());
    window_.publish();
    window_.await_all();
    for (int rank = 0; rank < ranks(); ++rank) sources_[static_cast<std::size_t>(rank)] = window_.slot(rank);
    reduce_from_sources(out, count, reduction);
    total -= count;
  }
}

// The next chunk is published before the result of this one is awaited: while some still reduce, others pack.
void HostGroup::sliced_allreduce(std::span<const Piece> inputs, std::span<const Piece> outputs,
                                 const Reduction& reduction, DType result_type, std::int64_t total) {
  const std::size_t result_size = size_of(result_type);
  PieceCursor in(inputs), out(outputs);
  const std::int64_t chunk = elements_in(window_.chunk_bytes(), std::max(size_of(reduction.dtype), result_size));
  const auto publish_next = [&](std::int64_t count) {
    pack(in, count, reduction, window_.open_step());
    window_.publish();
  };
  if (total > 0) publish_next(std::min(chunk, total));
  while (total > 0) {
    const std::int64_t count = std::min(chunk, total);
    total -= count;
    window_.await_all();
    reduce_slices(reduction, result_type, count);
    if (total > 0) publish_next(std::min(chunk, total));
    window_.await_round();
    unpack(out, count, result_size, window_.result());
  }
}

// Through the first-level cache and copied from there: reducing straight into lines that other CPUs have read is much
// slower where they are far.
void HostGroup::reduce_slices(const Reduction& reduction, DType result_type, std::int64_t count) {
  const std::size_t in_size = size_of(reduction.dtype), out_size = size_of(result_type);
  const std::int64_t block = elements_in(kScratchBytes, out_size);
  window_.open_round();
  while (const auto slice = window_.take_slice()) {
    const std::int64_t end = slice_begin(count, *slice + 1, window_.slices(), out_size);
    for (std::int64_t first = slice_begin(count, *slice, window_.slices(), out_size); first < end; first += block) {
      const auto elements = static_cast<std::size_t>(std::min(block, end - first));
      const auto at = static_cast<std::size_t>(first);
      for (int rank = 0; rank < ranks(); ++rank) {
        sources_[static_cast<std::size_t>(rank)] = window_.slot(rank) + at * in_size;
      }
      reduce(reduction, reduction.dtype, sources_, result_type, scratch_, elements);
      publishing_results_.copy_chunk(window_.result() + at * out_size, scratch_, elements * out_size);
    }
    window_.finish_slice();
  }
}

}  // namespace hvd
