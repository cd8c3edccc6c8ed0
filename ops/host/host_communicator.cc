// The shared parts of the collectives, and broadcast. See host_allreduce.cc, host_exchange.cc.
#include "ops/host/host_communicator.h"

#include <cstring>
#include <utility>

#include "core/base/error.h"
#include "ops/host/streaming_copy.h"

namespace hvd {

namespace {

// Larger outputs leave a CPU's share of the last-level cache before they are read again.
constexpr std::int64_t kStreamedOutputBytes = 8 << 20;
// Shorter pieces are mostly unaligned ends.
constexpr std::size_t kStreamedPieceBytes = 1 << 10;

}  // namespace

HostCommunicator::OutputScope::OutputScope(HostCommunicator& group, std::int64_t bytes) : group_(group) {
  group.streams_outputs_ = kCanStream && bytes >= kStreamedOutputBytes;
}

HostCommunicator::OutputScope::~OutputScope() {
  if (group_.streams_outputs_) finish_streaming();
  group_.streams_outputs_ = false;
}

HostCommunicator::HostCommunicator(std::span<std::byte> region, TensorArena* arena, int rank, int ranks,
                                   const WindowOptions& options, const AbortFlag* abort, Window::Describe describe)
    : window_(region, rank, ranks, options, abort, std::move(describe)),
      arena_(arena),
      sources_(static_cast<std::size_t>(ranks)) {
  introduce();
}

std::int64_t HostCommunicator::elements_in(std::size_t bytes, std::size_t element_size) {
  return static_cast<std::int64_t>(bytes / 64 * 64 / element_size);
}

std::int64_t HostCommunicator::chunk_elements(DType dtype) const {
  return elements_in(window_.chunk_bytes(), size_of(dtype));
}

HostCommunicator::SliceBounds HostCommunicator::slice_bounds(std::int64_t count, int slice, int slices,
                                                             std::size_t element_size) {
  const auto line = static_cast<std::int64_t>(64 / element_size);
  const std::int64_t lines = (count + line - 1) / line;
  return {std::min(count, lines * slice / slices * line), std::min(count, lines * (slice + 1) / slices * line)};
}

void HostCommunicator::pack(PieceCursor& cursor, std::int64_t count, const Reduction& reduction,
                            std::byte* destination) {
  const std::size_t size = size_of(reduction.dtype);
  // A negative prescale reverses the order, and thereby exchanges the identities of min and max.
  ReduceOp identity_op = reduction.op;
  if (reduction.prescale < 0 && identity_op == ReduceOp::min) {
    identity_op = ReduceOp::max;
  } else if (reduction.prescale < 0 && identity_op == ReduceOp::max) {
    identity_op = ReduceOp::min;
  }
  publishing_.open(static_cast<std::size_t>(count) * size);
  while (count > 0) {
    const PieceCursor::Run run = cursor.next(count);
    const std::size_t bytes = static_cast<std::size_t>(run.count) * size;
    if (const std::byte* input = run.input(size)) {
      publishing_.copy(destination, input, bytes);
    } else {
      fill_identity(reduction.dtype, identity_op, destination, static_cast<std::size_t>(run.count));
    }
    destination += bytes;
    count -= run.count;
  }
  publishing_.close();
}

void HostCommunicator::publish_next(Publication& publication, const Reduction& reduction) {
  const std::int64_t count = std::min(publication.chunk, publication.left);
  if (count == 0) return;
  pack(publication.cursor, count, reduction, window_.open_step());
  *window_.local_note() = static_cast<std::byte>(Published::chunk);
  window_.publish();
  publication.left -= count;
}

void HostCommunicator::write_output(std::byte* output, const std::byte* source, std::size_t bytes) const {
  if (streams_outputs_ && bytes >= kStreamedPieceBytes) {
    stream(output, source, bytes);
  } else {
    std::memcpy(output, source, bytes);
  }
}

void HostCommunicator::unpack(PieceCursor& cursor, std::int64_t count, std::size_t element_size,
                              const std::byte* source) const {
  while (count > 0) {
    const PieceCursor::Run run = cursor.next(count);
    const std::size_t bytes = static_cast<std::size_t>(run.count) * element_size;
    if (std::byte* output = run.output(element_size)) write_output(output, source, bytes);
    source += bytes;
    count -= run.count;
  }
}

void HostCommunicator::find_published(std::size_t offset) {
  for (int rank = 0; rank < ranks(); ++rank) sources_[static_cast<std::size_t>(rank)] = window_.slot(rank) + offset;
}

void HostCommunicator::find_notes() {
  for (int rank = 0; rank < ranks(); ++rank) sources_[static_cast<std::size_t>(rank)] = window_.note(rank);
}

void HostCommunicator::reduce_from_sources(PieceCursor& cursor, std::int64_t count, const Reduction& reduction) {
  const std::size_t size = size_of(reduction.dtype), self = static_cast<std::size_t>(rank());
  while (count > 0) {
    const PieceCursor::Run run = cursor.next(count);
    if (std::byte* output = run.output(size)) {
      // This rank's input is closer than its published copy.
      const void* const published = sources_[self];
      if (const std::byte* own = run.input(size)) sources_[self] = own;
      reduce_to_output(output, run.count, reduction);
      sources_[self] = published;
    }
    for (const void*& source : sources_) source = advance(source, run.count, size);
    count -= run.count;
  }
}

void HostCommunicator::reduce_to_output(std::byte* output, std::int64_t count, const Reduction& reduction) {
  const DType dtype = reduction.dtype;
  if (!streams_outputs_) {
    fold(reduction, dtype, output, static_cast<std::size_t>(count));
    return;
  }
  // Goes through the first-level cache.
  const std::vector<const void*> begins = sources_;
  const std::int64_t block = elements_in(kScratchBytes, size_of(dtype));
  for (std::int64_t first = 0; first < count; first += block) {
    const auto elements = static_cast<std::size_t>(std::min(block, count - first));
    for (std::size_t i = 0; i < begins.size(); ++i) sources_[i] = advance(begins[i], first, size_of(dtype));
    fold(reduction, dtype, scratch_, elements);
    write_output(output, scratch_, elements * size_of(dtype));
    output += elements * size_of(dtype);
  }
  sources_ = begins;
}

void HostCommunicator::broadcast(std::span<const Piece> pieces, DType dtype, int root) {
  if (root < 0 || root >= ranks()) throw Internal("broadcast: the root is not a rank of this host");
  window_.begin("broadcast");
  broadcast_from(root, pieces, dtype);
}

void HostCommunicator::broadcast_from_leader(std::span<const Piece> pieces, DType dtype) {
  window_.begin("allreduce");
  broadcast_from(0, pieces, dtype);
}

void HostCommunicator::broadcast_from(int root, std::span<const Piece> pieces, DType dtype) {
  const std::size_t size = size_of(dtype);
  in_better_form(broadcast_trials_, elements_of(pieces) * static_cast<std::int64_t>(size), [&](FormTrials::Form form) {
    std::vector<Move> moves;
    for (std::size_t p = 0; rank() != root && p < pieces.size(); ++p) {
      moves.push_back({root, p, 0, pieces[p].output, pieces[p].elements});
    }
    const auto inputs = rank() == root ? pieces : std::span<const Piece>();
    if (form == FormTrials::Form::reading && move_by_reading(inputs, moves, size)) return;
    publish_chunks(pieces, dtype, root);
  });
  if (rank() == root) keep_own(pieces, size);
}

void HostCommunicator::publish_chunks(std::span<const Piece> pieces, DType dtype, int root) {
  // Smaller than others' chunks: all ranks are busy only while the root packs one chunk and the others unpack another.
  // If they share CPUs, they are busy anyway.
  const std::size_t chunk_bytes = window_.oversubscribed() ? window_.chunk_bytes() : window_.chunk_bytes() / 4;
  const std::size_t size = size_of(dtype);
  const bool is_root = rank() == root;
  PieceCursor cursor(pieces);
  const std::int64_t chunk = elements_in(chunk_bytes, size);
  const OutputScope scope(*this, elements_of(pieces) * static_cast<std::int64_t>(size));
  for (std::int64_t left = ranks() == 1 ? 0 : elements_of(pieces); left > 0;) {
    const std::int64_t count = std::min(chunk, left);
    std::byte* slot = window_.open_step();
    // The sum's identity is zero, the value for a root without input.
    if (is_root) pack(cursor, count, {.dtype = dtype}, slot);
    window_.publish();
    window_.await_entry();
    if (!is_root) {
      window_.await(root);
      unpack(cursor, count, size, window_.slot(root));
    }
    left -= count;
  }
}

void HostCommunicator::barrier() {
  window_.begin("barrier");
  meet();
}

std::vector<std::byte> HostCommunicator::exchange_words(std::byte own) {
  std::vector<std::byte> words{own};
  if (ranks() == 1) return words;
  window_.begin("asking for a collective");
  window_.open_step();
  *window_.local_note() = own;
  window_.publish();
  window_.await_all();
  words.clear();
  for (int rank = 0; rank < ranks(); ++rank) words.push_back(*window_.note(rank));
  return words;
}

}  // namespace hvd
