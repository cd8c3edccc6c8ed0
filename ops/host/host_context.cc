#include "ops/host/host_context.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace hvd {

#if defined(__x86_64__)
const bool kHasNonTemporalStores = true;

void copy_non_temporal(std::byte* destination, const std::byte* source, std::size_t bytes) {
  constexpr std::size_t kLine = 64;
  const std::size_t head = std::min(bytes, (kLine - reinterpret_cast<std::uintptr_t>(destination) % kLine) % kLine);
  std::memcpy(destination, source, head);
  std::size_t at = head;
  for (; at + kLine <= bytes; at += kLine) {
    for (std::size_t i = at; i < at + kLine; i += sizeof(__m128i)) {
      const __m128i value = _mm_loadu_si128(reinterpret_cast<const __m128i*>(source + i));
      _mm_stream_si128(reinterpret_cast<__m128i*>(destination + i), value);
    }
  }
  std::memcpy(destination + at, source + at, bytes - at);
}

void fence_non_temporal() { _mm_sfence(); }
#else
const bool kHasNonTemporalStores = false;
void copy_non_temporal(std::byte* destination, const std::byte* source, std::size_t bytes) {
  std::memcpy(destination, source, bytes);
}
void fence_non_temporal() {}
#endif

void PublishingCopy::open(std::size_t bytes) {
  store_kind_ = CopyTrials::StoreKind::plain;
  bytes_ = kHasNonTemporalStores && bytes >= kMeasuredBytes ? bytes : 0;
  if (bytes_ == 0) return;
  store_kind_ = trials_.choose();
  started_ = Clock::now();
}

void PublishingCopy::copy(std::byte* destination, const std::byte* source, std::size_t bytes) {
  if (store_kind_ == CopyTrials::StoreKind::non_temporal && bytes >= kNonTemporalBytes) {
    copy_non_temporal(destination, source, bytes);
  } else {
    std::memcpy(destination, source, bytes);
  }
}

void PublishingCopy::close() {
  if (store_kind_ == CopyTrials::StoreKind::non_temporal) fence_non_temporal();
  if (bytes_ > 0) trials_.took(store_kind_, seconds(Clock::now() - started_) / static_cast<double>(bytes_));
}

HostContext::HostContext(std::span<std::byte> region, TensorArena* shared_arena, int rank, int ranks,
                         const WindowOptions& options, const AbortFlag* abort,
                         const WindowWait::Describe& describe_rank)
    : window(region, rank, ranks, options, abort, describe_rank),
      arena(shared_arena),
      describe(describe_rank),
      sources(static_cast<std::size_t>(ranks)) {
  if (ranks == 1) return;
  const std::byte readable{peers.probe_access(exchange_payloads(*this, peers.local_probe()))};
  const std::vector<std::byte> answers = exchange_payloads(*this, readable);
  reads = std::count(answers.begin(), answers.end(), std::byte{true}) == ranks;
}

namespace {

// Shorter pieces are mostly unaligned ends.
constexpr std::size_t kNonTemporalPieceBytes = 1 << 10;

void reduce_to_output(HostContext& context, std::byte* output, std::int64_t count, const Reduction& reduction) {
  const DType dtype = reduction.dtype;
  if (!context.non_temporal_outputs) {
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

NonTemporalScope::NonTemporalScope(HostContext& context, DataPath path) : context_(context) {
  context.non_temporal_outputs = path == DataPath::window_streaming;
}

NonTemporalScope::~NonTemporalScope() {
  if (context_.non_temporal_outputs) fence_non_temporal();
  context_.non_temporal_outputs = false;
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
  if (context.non_temporal_outputs && bytes >= kNonTemporalPieceBytes) {
    copy_non_temporal(output, source, bytes);
  } else {
    std::memcpy(output, source, bytes);
  }
}

void copy_elements(void* output, const void* input, std::int64_t elements, std::size_t element_size) {
  if (output == nullptr || input == nullptr || output == input || elements == 0) return;
  std::memcpy(output, input, static_cast<std::size_t>(elements) * element_size);
}

void copy_local_part(std::span<const Piece> pieces, std::size_t element_size) {
  for (const Piece& piece : pieces) copy_elements(piece.output, piece.input, piece.elements, element_size);
}

void publish_next(HostContext& context, Publication& publication, const Reduction& reduction) {
  const std::int64_t count = std::min(publication.chunk, publication.left);
  if (count == 0) return;
  pack(context, publication.cursor, count, reduction, context.window.open_step());
  *context.window.local_payload() = static_cast<std::byte>(Published::chunk);
  context.window.publish();
  publication.left -= count;
}

void find_published(HostContext& context, std::size_t offset) {
  for (int rank = 0; rank < context.ranks(); ++rank) {
    context.sources[static_cast<std::size_t>(rank)] = context.window.slot(rank) + offset;
  }
}

void find_payloads(HostContext& context) {
  for (int rank = 0; rank < context.ranks(); ++rank) {
    context.sources[static_cast<std::size_t>(rank)] = context.window.payload(rank);
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

void barrier_step(HostContext& context) {
  context.window.open_step();
  context.window.publish();
  context.window.await_all();
}

double time_of_all_ranks(HostContext& context, TimePoint started) {
  struct Times {
    TimePoint started, ended;
  };
  const std::vector<Times> times = exchange_payloads(context, Times{.started = started, .ended = Clock::now()});
  Times all = times.front();
  for (const Times& rank : times) {
    all.started = std::min(all.started, rank.started);
    all.ended = std::max(all.ended, rank.ended);
  }
  return seconds(all.ended - all.started);
}

}  // namespace hvd
