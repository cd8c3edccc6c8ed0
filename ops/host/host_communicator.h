// The collectives of one host's ranks through shared memory.
//
// Each has its own form over the window (window.h), and processes the tensors as one sequence of elements: copying a
// chunk of it into this rank's slot packs and publishes it at once, and results are copied directly to the outputs.
// There is no fusion buffer, and a chunk stays in the second-level cache from the first copy to the last.
//
//   allreduce, up to 112 bytes          one step, the data beside the step's number: every rank reduces everything.
//   allreduce, little, ranks > CPUs     one step: the last rank to publish reduces for all before it releases them.
//   allreduce, 2 ranks or little data   one step a chunk: publish, every rank reduces everything.   S + nS read
//   allreduce, all tensors in the arena each reduces a slice directly from and to all tensors.           S + S moved
//   allreduce, where that is faster     read the others' memory directly; see form_trials.h.    S + S (n-1)/n moved
//   allreduce otherwise                 publish; each reduces a slice for all; gather the result.   S + S + S read
//   reducescatter                       publish in one block for each rank; each reduces its own.   S + S read
//   allgather, alltoall                 publish; copy what is for this rank.
//   broadcast                           the root publishes; the others copy.
//   these, where that is faster         read the others' memory directly.
// (S: bytes of all tensors. Bytes read per rank; an allreduce through pairwise messages reads about twice as much.)
//
// Sums are taken in rank order, element by element, so that a result depends neither on which rank reduces nor on how
// tensors are fused or split.
//
// Engine thread only. Inputs may be outputs, or be in place in an allgather's output. A joined rank (null input) takes
// part as if its tensors contained the operation's identity. Lists of counts are those of CollectiveCall. Throws what
// Window throws; afterwards the communicator may only be destroyed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/execution/tensor_arena.h"
#include "core/operation/collective_call.h"
#include "ops/host/form_trials.h"
#include "ops/host/host_form.h"
#include "ops/host/peer_memory.h"
#include "ops/host/piece_cursor.h"
#include "ops/host/publishing_copy.h"
#include "ops/host/window.h"
#include "ops/reduction/reduce.h"

namespace hvd {

class HostCommunicator {
 public:
  using Counts = std::vector<std::vector<std::int64_t>>;

  static std::size_t region_bytes(int ranks, std::size_t chunk_bytes) {
    return Window::region_bytes(ranks, chunk_bytes);
  }

  // The parameters are those of Window's constructor, except for the arena, which exists on all ranks of the host or on
  // none (null), and which outlives the communicator. Returns when all ranks of the host have called.
  HostCommunicator(std::span<std::byte> region, TensorArena* arena, int rank, int ranks, const WindowOptions& options,
                   const AbortFlag* abort, Window::Describe describe);

  int rank() const { return window_.rank(); }
  int ranks() const { return window_.ranks(); }

  // The facts by which allreduces choose their form, for display (host_form.h).
  HostShape facts() const {
    return {
        .ranks = ranks(), .oversubscribed = window_.oversubscribed(), .arena = arena_ != nullptr, .reading = reads_};
  }

  // As Window's. Any collective may be entered as asking; those without bytes take no step, and cannot be declined.
  void enter(Entry entry, std::uint32_t call_id) { window_.enter(entry, call_id); }
  void use_chunks(std::size_t bytes) { window_.use_chunks(bytes); }
  void decline(std::uint32_t call_id) { window_.decline(call_id); }
  void set_late_callback(Duration timeout, const std::function<bool()>& late) {
    window_.set_late_callback(timeout, late);
  }

  void allreduce(std::span<const Piece> pieces, const Reduction& reduction);
  void broadcast(std::span<const Piece> pieces, DType dtype, int root);
  void allgather(std::span<const Piece> pieces, const Counts& counts, DType dtype);
  void reducescatter(std::span<const Piece> pieces, const Counts& counts, const Reduction& reduction);
  void alltoall(const Piece& piece, const Counts& counts, DType dtype);
  void barrier();
  // Returns the words of all ranks, by rank.
  std::vector<std::byte> exchange_words(std::byte own);

  // First half of an allreduce over several hosts: reduces all pieces, as accumulators without postscale, to the
  // pieces' outputs at the leader (local rank 0). The other ranks have no outputs.
  void reduce_to_leader(std::span<const Piece> pieces, const Reduction& reduction);
  // Second half: a broadcast from the leader.
  void broadcast_from_leader(std::span<const Piece> pieces, DType dtype);

 private:
  static constexpr std::size_t kScratchBytes = 16 << 10;

  void broadcast_from(int root, std::span<const Piece> pieces, DType dtype);
  void publish_chunks(std::span<const Piece> pieces, DType dtype, int root);
  // Copies inputs to their places in this rank's outputs.
  static void keep_own(std::span<const Piece> pieces, std::size_t element_size);
  // The data of each rank, piece by piece; only this rank's part has inputs.
  using Parts = std::vector<std::vector<Piece>>;
  void allgather_in_chunks(const Parts& parts, DType dtype);
  void alltoall_in_chunks(std::span<const void* const> to, std::span<void* const> from, const Counts& counts,
                          std::size_t element_size);

  // The elements of a collective that are still to be published, chunk by chunk.
  struct Publication {
    PieceCursor cursor;
    std::int64_t left;
    std::int64_t chunk;
  };
  // Publishes the next chunk, if there is one.
  void publish_next(Publication& publication, const Reduction& reduction);

  // allreduce (host_allreduce.cc)
  void note_allreduce(std::span<const Piece> pieces, const Reduction& reduction, std::int64_t total);
  void allreduce_by_last(std::span<const Piece> pieces, const Reduction& reduction, std::int64_t total);
  void chunked_allreduce(const Publication& publication, std::span<const Piece> pieces, const Reduction& reduction,
                         std::int64_t total);
  void one_step_allreduce(Publication publication, std::span<const Piece> pieces, const Reduction& reduction,
                          std::int64_t total);
  void sliced_allreduce(Publication publication, std::span<const Piece> outputs, const Reduction& reduction,
                        DType result_type, std::int64_t total);
  // Returns the result, whose reduction must still be awaited.
  const std::byte* reduce_slices(const Reduction& reduction, DType result_type, std::int64_t count);

  // the choice of a form (large_allreduce.cc)
  enum class Published : unsigned char { chunk, residence, addresses };  // first byte of a step's note
  struct Place {  // of a piece: offsets in the rank's part of the arena, or addresses in its memory
    std::uint64_t input;
    std::uint64_t output;
  };
  void introduce();
  void large_allreduce(std::span<const Piece> pieces, const Reduction& reduction, std::int64_t total);
  void place_and_reduce(std::span<const Piece> pieces, const Reduction& reduction, std::int64_t total,
                        FormTrials::Form form);
  // Publishes the places of the pieces instead of their content, if the other ranks can access all of them.
  bool publish_places(std::span<const Piece> pieces, std::size_t element_size, FormTrials::Form form);
  bool find_residence(std::span<const Piece> pieces, std::size_t element_size, std::span<Place> places) const;
  static bool find_addresses(std::span<const Piece> pieces, std::span<Place> places);
  // The number of ranks that published this kind in the current step, and the places: by piece, within a piece by rank.
  int count_ranks(Published kind) const;
  std::vector<Place> published_places(std::size_t pieces) const;
  Place published_place(int rank, std::size_t piece) const;
  // Exchanges notes in a separate step; returns them by rank.
  template <typename Note>
  std::vector<Note> exchange_notes(const Note& own);
  FormTrials::Costs sum_of(const FormTrials::Costs& own);
  void meet();

  // allreduce in the arena (resident_allreduce.cc)
  void resident_allreduce(std::span<const Piece> pieces, const Reduction& reduction, std::int64_t total);
  void find_tensors(std::span<const Piece> pieces, std::size_t element_size);
  void reduce_resident(std::size_t piece, std::int64_t first, std::int64_t end, const Reduction& reduction);

  // form selection by measurement: form_trials.h
  // Calls run(form) with the form for that many bytes, and times it during trials. All ranks pass the same bytes.
  template <typename Run>
  void in_better_form(FormTrials& trials, std::int64_t bytes, const Run& run) {
    if (!reads_ || !reach_matters(bytes)) return run(FormTrials::Form::chunks);
    const FormTrials::Choice choice = trials.choose(bytes);
    if (!choice.is_trial) return run(choice.form);
    try {
      meet();  // so that the time of late ranks is not measured
    } catch (const Declined&) {
      trials.take_back(bytes);
      throw;
    }
    const TimePoint started = Clock::now();
    run(choice.form);
    trials.took(bytes, choice.form, seconds(Clock::now() - started));
    if (choice.is_last) trials.agree(bytes, sum_of(trials.costs(bytes)));
  }

  // data movement by reading (reading_exchange.cc)
  struct Move {  // data that this rank reads from another rank's input
    int source;
    std::size_t piece;
    std::int64_t first;
    void* output;
    std::int64_t elements;
  };
  // `inputs` are those that other ranks may read. Returns false, on all ranks, if some rank has inputs that cannot be
  // read; nothing has been moved then.
  bool move_by_reading(std::span<const Piece> inputs, std::span<const Move> moves, std::size_t element_size);

  // allreduce by reading (reading_allreduce.cc)
  static constexpr std::size_t kReadBytes = 64 << 10;
  void reading_allreduce(std::span<const Piece> pieces, const Reduction& reduction, std::int64_t total);
  void reduce_reading(const Piece& piece, const Place* places, std::int64_t first, std::int64_t end,
                      const Reduction& reduction);

  // The bounds of slice `slice` of `count` elements: whole cache lines except at the end.
  struct SliceBounds {
    std::int64_t begin, end;
  };
  static SliceBounds slice_bounds(std::int64_t count, int slice, int slices, std::size_t element_size);
  // Calls visit(piece, first, end) for each piece that has elements in the slice.
  template <typename Visit>
  static void for_pieces(std::span<const Piece> pieces, const SliceBounds& slice, const Visit& visit) {
    std::int64_t begin = 0;  // of the piece
    for (std::size_t p = 0; p < pieces.size(); begin += pieces[p++].elements) {
      const std::int64_t first = std::max(slice.begin - begin, std::int64_t{0});
      const std::int64_t end = std::min(slice.end - begin, pieces[p].elements);
      if (first < end) visit(p, first, end);
    }
  }

  // In its scope, outputs of `bytes` in total bypass the caches if they are too large for them.
  class OutputScope {
   public:
    OutputScope(HostCommunicator& group, std::int64_t bytes);
    ~OutputScope();
    OutputScope(const OutputScope&) = delete;
    OutputScope& operator=(const OutputScope&) = delete;

   private:
    HostCommunicator& group_;
  };

  // Sets sources_ to the ranks' published slots of the current step, from this offset on.
  void find_published(std::size_t offset);
  // Sets sources_ to the ranks' notes.
  void find_notes();
  // Fills elements [bounds) of `target`, which others have read: fill(first, elements) writes a block to scratch_, in
  // the first-level cache, and it is copied from there. Reducing directly into lines of distant CPUs is much slower.
  template <typename Fill>
  void publish_blocks(const SliceBounds& bounds, std::size_t element_size, std::byte* target, const Fill& fill) {
    const std::int64_t block = elements_in(kScratchBytes, element_size);
    for (std::int64_t begin = bounds.begin; begin < bounds.end; begin += block) {
      const auto first = static_cast<std::size_t>(begin);
      const auto elements = static_cast<std::size_t>(std::min(block, bounds.end - begin));
      fill(first, elements);
      publishing_results_.copy_chunk(target + first * element_size, scratch_, elements * element_size);
    }
  }
  // Reduces sources_, one per rank and of the tensors' type, into `out`, in rank order.
  void fold(const Reduction& reduction, DType out_type, void* out, std::size_t elements) {
    reduce(reduction, reduction.dtype, sources_, out_type, out, elements);
  }

  std::int64_t chunk_elements(DType dtype) const;
  // The number of elements in the whole cache lines that fit into `bytes`.
  static std::int64_t elements_in(std::size_t bytes, std::size_t element_size);
  // Copies the next `count` elements into this rank's slot at `destination`; joined ranks write the identity.
  void pack(PieceCursor& cursor, std::int64_t count, const Reduction& reduction, std::byte* destination);
  // Copies the next `count` elements from `source` to the outputs that are wanted.
  void unpack(PieceCursor& cursor, std::int64_t count, std::size_t element_size, const std::byte* source) const;
  void write_output(std::byte* output, const std::byte* source, std::size_t bytes) const;
  // Reduces the next `count` elements from sources_ directly into the outputs, and advances the sources.
  void reduce_from_sources(PieceCursor& cursor, std::int64_t count, const Reduction& reduction);
  void reduce_to_output(std::byte* output, std::int64_t count, const Reduction& reduction);

  Window window_;
  TensorArena* const arena_;
  PeerMemory peers_;
  bool reads_ = false;  // all ranks can read each other's memory
  FormTrials allreduce_trials_, allgather_trials_, broadcast_trials_, alltoall_trials_;
  std::vector<std::byte> read_;                    // kReadBytes per rank
  bool streams_outputs_ = false;                   // inside an OutputScope
  PublishingCopy publishing_;                      // into this rank's slots
  PublishingCopy publishing_results_;              // from scratch_, in the first-level cache
  std::vector<const void*> sources_;               // one per rank
  std::vector<const std::byte*> resident_inputs_;  // of all ranks: by piece, within a piece by rank
  std::vector<std::byte*> resident_outputs_;
  alignas(64) std::byte scratch_[kScratchBytes];
};

}  // namespace hvd
