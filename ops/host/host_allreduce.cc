// Allreduce inside a host: chooses among its forms (ops/choice/host_choice.h), and runs one.
//
// For sizes at which uses_peer_access(), the first step of the collective tells which forms are possible. In it every
// rank publishes its first chunk, the locations of its tensors in the arena, or, while reading from each other is tried
// or has proved faster, the addresses of its tensors. If all ranks have published locations in the arena, or all of
// them addresses, the tensors are accessed directly. If all have published chunks, the collective continues with these.
// Otherwise all ranks start again with chunks. If the user has named a form (HVD_ALGORITHM), it is used, and only the
// way to store outputs is tried.
#include "ops/host/collectives.h"
#include "ops/host/peer_tensors.h"

namespace hvd {

namespace {

// The allreduce of a rank that is alone on its host: scales and rounds.
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

void allreduce_in_chunks(HostContext& context, const Publication& publication, std::span<const Piece> pieces,
                         const Reduction& reduction, std::int64_t total) {
  const std::int64_t bytes = total * static_cast<std::int64_t>(size_of(reduction.dtype));
  if (choose_host_form(context.shape(), bytes) == HostForm::one_step) {
    one_step_allreduce(context, publication, pieces, reduction, total);
  } else {
    sliced_allreduce(context, publication, pieces, reduction, reduction.dtype, total);
  }
}

// Runs after the first step. If this rank has published its first chunk, `publication` has advanced; if the locations
// of its tensors, it has not.
void allreduce_as_published(HostContext& context, std::span<const Piece> pieces, const Reduction& reduction,
                            std::int64_t total, Publication publication) {
  const Publication from_start{PieceCursor(pieces), total, publication.chunk};
  context.window.await_all();
  const int resident = count_ranks(context, Published::residence);
  const int readable = count_ranks(context, Published::addresses);
  const PeerAccess access = resident == context.ranks()   ? PeerAccess::arena
                            : readable == context.ranks() ? PeerAccess::memory
                                                          : PeerAccess::window;
  const std::int64_t bytes = total * static_cast<std::int64_t>(size_of(reduction.dtype));
  const HostForm chosen = choose_host_form(context.shape(), bytes, access);
  if (chosen == HostForm::resident) return resident_allreduce(context, pieces, reduction, total);
  if (chosen == HostForm::reading) return reading_allreduce(context, pieces, reduction, total);
  if (resident + readable > 0) publication = from_start;
  allreduce_in_chunks(context, publication, pieces, reduction, total);
}

void allreduce_by_access(HostContext& context, std::span<const Piece> pieces, const Reduction& reduction,
                         std::int64_t total, DataPath path) {
  const std::size_t size = size_of(reduction.dtype);
  Publication publication{PieceCursor(pieces), total, elements_in(context.window.chunk_bytes(), size)};
  const bool has_locations = publish_locations(context, pieces, size, path);
  if (!has_locations) publish_next(context, publication, reduction);
  while_others_write(context, [&] { allreduce_as_published(context, pieces, reduction, total, publication); });
}

}  // namespace

void host_allreduce(HostContext& context, std::span<const Piece> pieces, const Reduction& reduction) {
  check_reduction(reduction.dtype, reduction.op);
  if (context.ranks() == 1) {
    for (const Piece& piece : pieces) reduce_alone(piece, reduction, reduction.dtype, piece.output);
    return;
  }
  const std::int64_t total = elements_of(pieces);
  const std::int64_t bytes = total * static_cast<std::int64_t>(size_of(reduction.dtype));
  if (total == 0) return;
  context.window.waits().begin("allreduce");
  const std::int64_t chunk = elements_in(context.window.chunk_bytes(), size_of(reduction.dtype));
  const HostForm form = choose_host_form(context.shape(), bytes);
  if (form == HostForm::inline_payload) return inline_payload_allreduce(context, pieces, reduction, total);
  if (form == HostForm::by_last && total <= chunk) return by_last_allreduce(context, pieces, reduction, total);
  const auto* const wanted = find_range<HostForm>(context.wanted, static_cast<std::size_t>(bytes));
  PathTrials::Alternatives alternatives = allreduce_alternatives(context.shape(), bytes);
  if (wanted != nullptr && wanted->algorithm == HostForm::reading && alternatives.peer_memory) {
    return allreduce_by_access(context, pieces, reduction, total, DataPath::peer_memory);
  }
  if (wanted != nullptr) alternatives.peer_memory = false;
  const bool in_chunks = !uses_peer_access(bytes) || (wanted != nullptr && wanted->algorithm == form);
  on_fastest_path(context, "allreduce", context.trials.allreduce, bytes, alternatives, [&](DataPath path) {
    if (!in_chunks) return allreduce_by_access(context, pieces, reduction, total, path);
    allreduce_in_chunks(context, {PieceCursor(pieces), total, chunk}, pieces, reduction, total);
  });
}

void reduce_to_leader(HostContext& context, std::span<const Piece> pieces, const Reduction& reduction) {
  check_reduction(reduction.dtype, reduction.op);
  const DType accumulator = accumulator_of(reduction.dtype);
  Reduction unfinished = reduction;
  unfinished.postscale = 1.0;
  if (context.ranks() == 1) {
    for (const Piece& piece : pieces) reduce_alone(piece, unfinished, accumulator, piece.output);
    return;
  }
  context.window.waits().begin("allreduce");
  const std::int64_t total = elements_of(pieces);
  const std::int64_t chunk = elements_in(context.window.chunk_bytes(), size_of(accumulator));
  sliced_allreduce(context, {PieceCursor(pieces), total, chunk}, pieces, unfinished, accumulator, total);
}

}  // namespace hvd
