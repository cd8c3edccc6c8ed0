#include "ops/host/places.h"

#include <algorithm>

namespace hvd {

namespace {

bool find_residence(const HostContext& context, std::span<const Piece> pieces, std::size_t element_size,
                    std::span<Place> places) {
  const TensorArena* const arena = context.arena;
  if (arena == nullptr) return false;
  for (std::size_t p = 0; p < pieces.size(); ++p) {
    const std::size_t bytes = static_cast<std::size_t>(pieces[p].elements) * element_size;
    const auto input = arena->offset_of(pieces[p].input, bytes), output = arena->offset_of(pieces[p].output, bytes);
    if (bytes > 0 && (!input || !output)) return false;
    places[p] = {.input = input.value_or(0), .output = output.value_or(0)};
  }
  return true;
}

// A joined rank has no tensors.
bool find_addresses(std::span<const Piece> pieces, std::span<Place> places) {
  for (std::size_t p = 0; p < pieces.size(); ++p) {
    if (pieces[p].elements > 0 && (pieces[p].input == nullptr || pieces[p].output == nullptr)) return false;
    places[p] = {.input = reinterpret_cast<std::uint64_t>(pieces[p].input),
                 .output = reinterpret_cast<std::uint64_t>(pieces[p].output)};
  }
  return true;
}

Place published_place(const HostContext& context, int rank, std::size_t piece) {
  Place place{};
  std::memcpy(&place, context.window.slot(rank) + piece * sizeof place, sizeof place);
  return place;
}

}  // namespace

HostContext::HostContext(std::span<std::byte> region, TensorArena* shared_arena, int rank, int ranks,
                         const WindowOptions& options, const AbortFlag* abort,
                         const WindowWait::Describe& describe_rank)
    : window(region, rank, ranks, options, abort, describe_rank),
      arena(shared_arena),
      describe(describe_rank),
      sources(static_cast<std::size_t>(ranks)) {
  // With fewer CPUs than ranks, measured times depend more on scheduling than on the form.
  if (ranks == 1 || window.oversubscribed()) return;
  const std::byte readable{peers.meet(exchange_notes(*this, peers.introduction()))};
  const std::vector<std::byte> answers = exchange_notes(*this, readable);
  reads = std::count(answers.begin(), answers.end(), std::byte{true}) == ranks;
}

bool publish_places(HostContext& context, std::span<const Piece> pieces, std::size_t element_size,
                    FormTrials::Form form) {
  if (pieces.size() * sizeof(Place) > context.window.chunk_bytes()) return false;
  std::vector<Place> places(pieces.size());
  auto kind = Published::residence;
  if (!find_residence(context, pieces, element_size, places)) {
    if (form != FormTrials::Form::reading || !find_addresses(pieces, places)) return false;
    kind = Published::addresses;
  }
  std::memcpy(context.window.open_step(), places.data(), places.size() * sizeof(Place));
  *context.window.local_note() = static_cast<std::byte>(kind);
  context.window.publish();
  return true;
}

int count_ranks(const HostContext& context, Published kind) {
  int count = 0;
  for (int rank = 0; rank < context.ranks(); ++rank) {
    count += *context.window.note(rank) == static_cast<std::byte>(kind) ? 1 : 0;
  }
  return count;
}

std::vector<Place> published_places(const HostContext& context, std::size_t pieces) {
  const auto count = static_cast<std::size_t>(context.ranks());
  std::vector<Place> places(pieces * count);
  for (std::size_t p = 0; p < pieces; ++p) {
    for (std::size_t rank = 0; rank < count; ++rank) {
      places[p * count + rank] = published_place(context, static_cast<int>(rank), p);
    }
  }
  return places;
}

bool move_by_reading(HostContext& context, std::span<const Piece> inputs, std::span<const Move> moves,
                     std::size_t element_size) {
  std::byte* slot = context.window.open_step();
  bool readable = inputs.size() * sizeof(Place) <= context.window.chunk_bytes();
  for (const Piece& piece : inputs) readable = readable && (piece.input != nullptr || piece.elements == 0);
  for (std::size_t p = 0; readable && p < inputs.size(); ++p) {
    const Place place{.input = reinterpret_cast<std::uint64_t>(inputs[p].input), .output = 0};
    std::memcpy(slot + p * sizeof(Place), &place, sizeof(Place));
  }
  *context.window.local_note() = static_cast<std::byte>(readable ? Published::addresses : Published::chunk);
  context.window.publish();
  context.window.await_all();
  if (count_ranks(context, Published::addresses) < context.ranks()) return false;

  for (const Move& move : moves) {
    if (move.output == nullptr || move.elements == 0) continue;
    const std::uint64_t input = published_place(context, move.source, move.piece).input;
    context.peers.read(move.source, input + static_cast<std::uint64_t>(move.first) * element_size, move.output,
                       static_cast<std::size_t>(move.elements) * element_size, context.describe);
  }
  rendezvous(context);
  return true;
}

void rendezvous(HostContext& context) {
  context.window.open_step();
  context.window.publish();
  context.window.await_all();
}

void agree_on_form(HostContext& context, const char* collective, FormTrials& trials, std::int64_t bytes) {
  FormTrials::Costs sum{};
  for (const FormTrials::Costs& costs : exchange_notes(context, trials.costs(bytes))) {
    for (std::size_t form = 0; form < sum.size(); ++form) sum[form] += costs[form];
  }
  const std::string decision = trials.agree(collective, bytes, sum);
  if (context.report) context.report(decision);
}

}  // namespace hvd
