// The context of a rank's collectives inside its host (collectives.h): the shared window, the arena, access to the
// other ranks' memory, and the memory and measurements that are kept between calls. The algorithms are free functions
// on this context; those below move elements for them. Used by the thread that drives the engine; after an error of a
// window's wait it may only be destroyed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "core/base/clock.h"
#include "core/execution/tensor_arena.h"
#include "core/operation/collective_call.h"
#include "ops/choice/host_choice.h"
#include "ops/host/peer_memory.h"
#include "ops/host/window.h"
#include "ops/reduction/reduce.h"

namespace hvd {

// Copies that bypass the caches, for memory that this CPU will not read soon.
//
// A plain store first fetches the line that it overwrites. A non-temporal store sends whole lines to memory without
// requesting them: half the traffic for data that does not fit into the caches, and no line is taken away from the CPU
// that read it last. For data that fits it is several times slower.

// False if the instruction set has no such stores; copy_non_temporal() is a plain copy then.
extern const bool kHasNonTemporalStores;

// Any alignment. Call fence_non_temporal() before publishing the bytes: a release store does not order such stores.
void copy_non_temporal(std::byte* destination, const std::byte* source, std::size_t bytes);
void fence_non_temporal();

// Copies into memory that other CPUs have just read, by plain or by non-temporal stores (CopyTrials).
class PublishingCopy {
 public:
  // Starts a chunk of that many bytes; followed by one or more calls of copy(), and close() before it is published.
  void open(std::size_t bytes);
  void copy(std::byte* destination, const std::byte* source, std::size_t bytes);
  void close();

  // Copies a chunk that has one part.
  void copy_chunk(std::byte* destination, const std::byte* source, std::size_t bytes) {
    open(bytes);
    copy(destination, source, bytes);
    close();
  }

 private:
  static constexpr std::size_t kMeasuredBytes = 16 << 10;    // smaller chunks use plain stores
  static constexpr std::size_t kNonTemporalBytes = 1 << 10;  // and so do smaller parts of a chunk

  CopyTrials trials_;
  CopyTrials::StoreKind store_kind_ = CopyTrials::StoreKind::plain;
  std::size_t bytes_ = 0;  // of the chunk, if it is measured
  TimePoint started_;
};

struct HostContext {
  // Fits into the first-level cache.
  static constexpr std::size_t kScratchBytes = 16 << 10;

  // The parameters are those of Window's constructor, except for the arena, which exists on all ranks of the host or on
  // none (null), and which outlives the context. Returns when all ranks of the host have called.
  HostContext(std::span<std::byte> region, TensorArena* shared_arena, int rank, int ranks, const WindowOptions& options,
              const AbortFlag* abort, const WindowWait::Describe& describe_rank);
  HostContext(const HostContext&) = delete;
  HostContext& operator=(const HostContext&) = delete;

  int rank() const { return window.rank(); }
  int ranks() const { return window.ranks(); }

  // What the form of an allreduce depends on (host_choice.h).
  HostShape shape() const {
    return {.ranks = ranks(),
            .oversubscribed = window.oversubscribed(),
            .arena = arena != nullptr,
            .reading = reads,
            .non_temporal_stores = kHasNonTemporalStores,
            .wanted = wanted};
  }

  Window window;
  TensorArena* const arena;
  const WindowWait::Describe describe;
  PeerMemory peers;
  bool reads = false;  // all ranks can read and write each other's memory
  // The forms that the user has named, equal on all ranks. Set before the first collective.
  std::vector<SizeRange<HostForm>> wanted;
  // Logs the decision of a trial; empty on all ranks but one. Set before the first collective.
  std::function<void(const std::string&)> report;
  struct Trials {
    PathTrials allreduce, allgather, broadcast, alltoall, reducescatter;
  };
  Trials trials;
  PublishingCopy publishing;                      // into this rank's slots
  PublishingCopy publishing_results;              // from scratch
  bool non_temporal_outputs = false;              // inside a NonTemporalScope
  std::vector<const void*> sources;               // the inputs of the next reduction, by rank
  std::vector<std::byte> read_blocks;             // of all ranks, for reading_allreduce()
  std::vector<const std::byte*> resident_inputs;  // of all ranks: by piece, within a piece by rank
  std::vector<std::byte*> resident_outputs;
  alignas(64) std::byte scratch[kScratchBytes];
};

// ---- The tensors of a collective as one sequence, which is packed into this rank's slot of the window chunk by chunk,
// reduced in slices, and unpacked into the outputs.

inline std::int64_t elements_of(std::span<const Piece> pieces) {
  std::int64_t total = 0;
  for (const Piece& piece : pieces) total += piece.elements;
  return total;
}

// Advances a pointer by `elements`; null stays null.
inline void* advance(void* base, std::int64_t elements, std::size_t size) {
  return base == nullptr ? nullptr : static_cast<std::byte*>(base) + static_cast<std::size_t>(elements) * size;
}
inline const void* advance(const void* base, std::int64_t elements, std::size_t size) {
  return base == nullptr ? nullptr : static_cast<const std::byte*>(base) + static_cast<std::size_t>(elements) * size;
}

// Iterates over the elements of a list of pieces as one sequence, run by run; replaces a fusion buffer.
class PieceCursor {
 public:
  // Elements [first, first + count) of one piece.
  struct Run {
    const Piece* piece;
    std::int64_t first;
    std::int64_t count;

    // Null if the piece has no input.
    const std::byte* input(std::size_t element_size) const {
      return static_cast<const std::byte*>(advance(piece->input, first, element_size));
    }
    std::byte* output(std::size_t element_size) const {
      return static_cast<std::byte*>(advance(piece->output, first, element_size));
    }
  };

  explicit PieceCursor(std::span<const Piece> pieces) : next_(pieces.data()) {}

  // Returns the next elements of one piece, at most `limit`. At least `limit` elements must be left.
  Run next(std::int64_t limit) {
    while (next_->elements == first_) {
      ++next_;
      first_ = 0;
    }
    const Run run{next_, first_, std::min(limit, next_->elements - first_)};
    first_ += run.count;
    return run;
  }

 private:
  const Piece* next_;
  std::int64_t first_ = 0;
};

// The number of elements in the whole cache lines that fit into `bytes`.
inline std::int64_t elements_in(std::size_t bytes, std::size_t element_size) {
  return static_cast<std::int64_t>(bytes / 64 * 64 / element_size);
}

// The bounds of slice `slice` of `count` elements: whole cache lines except at the end.
struct SliceBounds {
  std::int64_t begin, end;
};
SliceBounds slice_bounds(std::int64_t count, int slice, int slices, std::size_t element_size);

// Calls visit(piece, first, end) for each piece that has elements in the slice.
template <typename Visit>
void for_pieces(std::span<const Piece> pieces, const SliceBounds& slice, const Visit& visit) {
  std::int64_t begin = 0;  // of the piece
  for (std::size_t p = 0; p < pieces.size(); begin += pieces[p++].elements) {
    const std::int64_t first = std::max(slice.begin - begin, std::int64_t{0});
    const std::int64_t end = std::min(slice.end - begin, pieces[p].elements);
    if (first < end) visit(p, first, end);
  }
}

// In its scope, outputs bypass the caches if the path is window_streaming.
class NonTemporalScope {
 public:
  NonTemporalScope(HostContext& context, DataPath path);
  ~NonTemporalScope();
  NonTemporalScope(const NonTemporalScope&) = delete;
  NonTemporalScope& operator=(const NonTemporalScope&) = delete;

 private:
  HostContext& context_;
};

// Copies the next `count` elements into this rank's slot at `destination`; joined ranks write the identity.
void pack(HostContext& context, PieceCursor& cursor, std::int64_t count, const Reduction& reduction,
          std::byte* destination);
// Copies the next `count` elements from `source` to the outputs; pieces without output are skipped.
void unpack(const HostContext& context, PieceCursor& cursor, std::int64_t count, std::size_t element_size,
            const std::byte* source);
void write_output(const HostContext& context, std::byte* output, const std::byte* source, std::size_t bytes);
// Copies elements unless one of the pointers is null.
void copy_elements(void* output, const void* input, std::int64_t elements, std::size_t element_size);
// Copies inputs to their places in this rank's outputs.
void copy_local_part(std::span<const Piece> pieces, std::size_t element_size);

// The first byte of a step's payload: what a rank has published in its slot.
enum class Published : unsigned char { chunk, residence, addresses };

// The elements of a collective that are still to be published, chunk by chunk.
struct Publication {
  PieceCursor cursor;
  std::int64_t left;
  std::int64_t chunk;
};
// Publishes the next chunk, if there is one.
void publish_next(HostContext& context, Publication& publication, const Reduction& reduction);

// Sets the context's sources to the ranks' published slots of the current step, from this offset on.
void find_published(HostContext& context, std::size_t offset);
// Sets the context's sources to the ranks' payloads of the current step.
void find_payloads(HostContext& context);

// Reduces the sources, one per rank and of the tensors' type, into `out`, in rank order.
inline void fold(const HostContext& context, const Reduction& reduction, DType out_type, void* out,
                 std::size_t elements) {
  reduce(reduction, reduction.dtype, context.sources, out_type, out, elements);
}
// Reduces the next `count` elements from the sources directly into the outputs, and advances the sources.
void reduce_from_sources(HostContext& context, PieceCursor& cursor, std::int64_t count, const Reduction& reduction);

// Takes a step without data.
void barrier_step(HostContext& context);

// Exchanges payloads in a separate step; returns them by rank.
template <typename Payload>
std::vector<Payload> exchange_payloads(HostContext& context, const Payload& own) {
  static_assert(sizeof(Payload) <= Window::kPayloadBytes && std::is_trivially_copyable_v<Payload>);
  context.window.open_step();
  std::memcpy(context.window.local_payload(), &own, sizeof own);
  context.window.publish();
  context.window.await_all();
  std::vector<Payload> payloads(static_cast<std::size_t>(context.ranks()));
  for (int rank = 0; rank < context.ranks(); ++rank) {
    std::memcpy(&payloads[static_cast<std::size_t>(rank)], context.window.payload(rank), sizeof own);
  }
  return payloads;
}

// Returns the seconds from the first rank's `started` until now on the last rank. The ranks of a host have one clock.
double time_of_all_ranks(HostContext& context, TimePoint started);

// Calls run(path) with the path for that many bytes, and times it during trials. All ranks pass the same bytes and
// alternatives. The decision is reported under the name of the collective.
template <typename Run>
void on_fastest_path(HostContext& context, const char* collective, PathTrials& trials, std::int64_t bytes,
                     PathTrials::Alternatives alternatives, const Run& run) {
  if (!alternatives.any()) return run(DataPath::window);
  const PathTrials::Choice choice = trials.choose(bytes, alternatives);
  const NonTemporalScope scope(context, choice.path);
  if (!choice.is_trial) return run(choice.path);
  barrier_step(context);  // so that the time of late ranks is not measured
  const TimePoint started = Clock::now();
  run(choice.path);
  const bool decides = trials.took(bytes, choice, time_of_all_ranks(context, started));
  if (decides && context.report) context.report(trials.decision_text(collective, bytes));
}

}  // namespace hvd
