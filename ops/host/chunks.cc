#include "ops/host/chunks.h"

#include <cstring>
#include <vector>

#include "ops/host/places.h"

namespace hvd {

namespace {

// Larger outputs leave a CPU's share of the last-level cache before they are read again.
constexpr std::int64_t kStreamedOutputBytes = 8 << 20;
// Shorter pieces are mostly unaligned ends.
constexpr std::size_t kStreamedPieceBytes = 1 << 10;

void reduce_to_output(HostContext& context, std::byte* output, std::int64_t count, const Reduction& reduction) {
  const DType dtype = reduction.dtype;
  if (!context.streams_outputs) {
    fold(context, reduction, dtype, output, static_cast<std::size_t>(count));
    return;
  }
  // Goes through the first-level cache.
  const std::vector<const void*> begins = context.sources;
  const std::int64_t block = elements_in(HostContext::kScratchBytes, size_of(dtype));
  for (std::int64_t first = 0; first < count; first += block) {
    const auto elements = static_cast<std::size_t>(std::min(block, count - first));
    for (std::size_t i = 0; i < begins.size(); ++i) context.sources[i] = advance(begins[i], first, size_of(dtype));
    fold(context, reduction, dtype, context.scratch, elements);
    write_output(context, output, context.scratch, elements * size_of(dtype));
    output += elements * size_of(dtype);
  }
  context.sources = begins;
}

}  // namespace

SliceBounds slice_bounds(std::int64_t count, int slice, int slices, std::size_t element_size) {
  const auto line = static_cast<std::int64_t>(64 / element_size);
  const std::int64_t lines = (count + line - 1) / line;
  return {std::min(count, lines * slice / slices * line), std::min(count, lines * (slice + 1) / slices * line)};
}

OutputScope::OutputScope(HostContext& context, std::int64_t bytes) : context_(context) {
  context.streams_outputs = kCanStream && bytes >= kStreamedOutputBytes;
}

OutputScope::~OutputScope() {
  if (context_.streams_outputs) finish_streaming();
  context_.streams_outputs = false;
}

void pack(HostContext& context, PieceCursor& cursor, std::int64_t count, const Reduction& reduction,
          std::byte* destination) {
  const std::size_t size = size_of(reduction.dtype);
  // A negative prescale reverses the order, and thereby exchanges the identities of min and max.
  ReduceOp identity_op = reduction.op;
  if (reduction.prescale < 0 && identity_op == ReduceOp::min) {
    identity_op = ReduceOp::max;
  } else if (reduction.prescale < 0 && identity_op == ReduceOp::max) {
    identity_op = ReduceOp::min;
  }
  context.publishing.open(static_cast<std::size_t>(count) * size);
  while (count > 0) {
    const PieceCursor::Run run = cursor.next(count);
    const std::size_t bytes = static_cast<std::size_t>(run.count) * size;
    if (const std::byte* input = run.input(size)) {
      context.publishing.copy(destination, input, bytes);
    } else {
      fill_identity(reduction.dtype, identity_op, destination, static_cast<std::size_t>(run.count));
    }
    destination += bytes;
    count -= run.count;
  }
  context.publishing.close();
}

void unpack(const HostContext& context, PieceCursor& cursor, std::int64_t count, std::size_t element_size,
            const std::byte* source) {
  while (count > 0) {
    const PieceCursor::Run run = cursor.next(count);
    const std::size_t bytes = static_cast<std::size_t>(run.count) * element_size;
    if (std::byte* output = run.output(element_size)) write_output(context, output, source, bytes);
    source += bytes;
    count -= run.count;
  }
}

void write_output(const HostContext& context, std::byte* output, const std::byte* source, std::size_t bytes) {
  if (context.streams_outputs && bytes >= kStreamedPieceBytes) {
    stream(output, source, bytes);
  } else {
    std::memcpy(output, source, bytes);
  }
}

void keep_own(std::span<const Piece> pieces, std::size_t element_size) {
  for (const Piece& piece : pieces) {
    if (piece.output == nullptr || piece.input == nullptr || piece.output == piece.input || piece.elements == 0) {
      continue;
    }
    std::memcpy(piece.output, piece.input, static_cast<std::size_t>(piece.elements) * element_size);
  }
}

void publish_next(HostContext& context, Publication& publication, const Reduction& reduction) {
  const std::int64_t count = std::min(publication.chunk, publication.left);
  if (count == 0) return;
  pack(context, publication.cursor, count, reduction, context.window.open_step());
  *context.window.local_note() = static_cast<std::byte>(Published::chunk);
  context.window.publish();
  publication.left -= count;
}

void find_published(HostContext& context, std::size_t offset) {
  for (int rank = 0; rank < context.ranks(); ++rank) {
    context.sources[static_cast<std::size_t>(rank)] = context.window.slot(rank) + offset;
  }
}

void find_notes(HostContext& context) {
  for (int rank = 0; rank < context.ranks(); ++rank) {
    context.sources[static_cast<std::size_t>(rank)] = context.window.note(rank);
  }
}

void reduce_from_sources(HostContext& context, PieceCursor& cursor, std::int64_t count, const Reduction& reduction) {
  const std::size_t size = size_of(reduction.dtype), self = static_cast<std::size_t>(context.rank());
  while (count > 0) {
    const PieceCursor::Run run = cursor.next(count);
    if (std::byte* output = run.output(size)) {
      // This rank's input is closer than its published copy.
      const void* const published = context.sources[self];
      if (const std::byte* own = run.input(size)) context.sources[self] = own;
      reduce_to_output(context, output, run.count, reduction);
      context.sources[self] = published;
    }
    for (const void*& source : context.sources) source = advance(source, run.count, size);
    count -= run.count;
  }
}

}  // namespace hvd
