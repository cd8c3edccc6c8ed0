#include "ops/host/peer_tensors.h"

#include <cstring>
#include <thread>

namespace hvd {
namespace {

void publish(HostContext& context, Published kind, std::span<const TensorLocation> locations) {
  std::byte* slot = context.window.open_step();
  copy_elements(slot, locations.data(), static_cast<std::int64_t>(locations.size()), sizeof(TensorLocation));
  *context.window.local_payload() = static_cast<std::byte>(kind);
  context.window.publish();
}

bool find_residence(const HostContext& context, std::span<const Piece> pieces, std::size_t element_size,
                    std::span<TensorLocation> locations) {
  const TensorArena* const arena = context.arena;
  if (arena == nullptr) return false;
  for (std::size_t p = 0; p < pieces.size(); ++p) {
    const std::size_t bytes = static_cast<std::size_t>(pieces[p].elements) * element_size;
    const auto input = arena->offset_of(pieces[p].input, bytes), output = arena->offset_of(pieces[p].output, bytes);
    if (bytes > 0 && (!input || !output)) return false;
    locations[p] = {.input = input.value_or(0), .output = output.value_or(0)};
  }
  return true;
}

bool are_accessible(HostContext& context, std::span<const TensorLocation> locations) {
  std::vector<std::uint64_t> addresses;
  for (const TensorLocation& location : locations) addresses.insert(addresses.end(), {location.input, location.output});
  return context.peers.is_accessible(addresses);
}

// A joined rank has no tensors.
bool find_addresses(HostContext& context, std::span<const Piece> pieces, std::span<TensorLocation> locations) {
  for (std::size_t p = 0; p < pieces.size(); ++p) {
    if (pieces[p].elements > 0 && (pieces[p].input == nullptr || pieces[p].output == nullptr)) return false;
    locations[p] = {.input = reinterpret_cast<std::uint64_t>(pieces[p].input),
                    .output = reinterpret_cast<std::uint64_t>(pieces[p].output)};
  }
  return are_accessible(context, locations);
}

TensorLocation published_location(const HostContext& context, int rank, std::size_t piece) {
  TensorLocation location{};
  std::memcpy(&location, context.window.slot(rank) + piece * sizeof location, sizeof location);
  return location;
}

}  // namespace

bool publish_locations(HostContext& context, std::span<const Piece> pieces, std::size_t element_size, DataPath path) {
  if (pieces.size() * sizeof(TensorLocation) > context.window.chunk_bytes()) return false;
  std::vector<TensorLocation> locations(pieces.size());
  auto kind = Published::residence;
  if (!find_residence(context, pieces, element_size, locations)) {
    if (path != DataPath::peer_memory || !find_addresses(context, pieces, locations)) return false;
    kind = Published::addresses;
  }
  publish(context, kind, locations);
  return true;
}

int count_ranks(const HostContext& context, Published kind) {
  int count = 0;
  for (int rank = 0; rank < context.ranks(); ++rank) {
    count += *context.window.payload(rank) == static_cast<std::byte>(kind) ? 1 : 0;
  }
  return count;
}

std::vector<TensorLocation> published_locations(const HostContext& context, std::size_t pieces) {
  const auto count = static_cast<std::size_t>(context.ranks());
  std::vector<TensorLocation> locations(pieces * count);
  for (std::size_t p = 0; p < pieces; ++p) {
    for (std::size_t rank = 0; rank < count; ++rank) {
      locations[p * count + rank] = published_location(context, static_cast<int>(rank), p);
    }
  }
  return locations;
}

bool exchange_addresses(HostContext& context, std::span<const TensorLocation> locations, bool accessible) {
  accessible =
      accessible && locations.size_bytes() <= context.window.chunk_bytes() && are_accessible(context, locations);
  if (!accessible) locations = {};
  publish(context, accessible ? Published::addresses : Published::chunk, locations);
  context.window.await_all();
  return count_ranks(context, Published::addresses) == context.ranks();
}

bool move_by_reading(HostContext& context, std::span<const Piece> inputs, std::span<const Move> moves,
                     std::size_t element_size) {
  bool accessible = true;
  std::vector<TensorLocation> locations;
  for (const Piece& piece : inputs) {
    accessible = accessible && (piece.input != nullptr || piece.elements == 0);
    locations.push_back({.input = reinterpret_cast<std::uint64_t>(piece.input), .output = 0});
  }
  if (!exchange_addresses(context, locations, accessible)) return false;

  for (const Move& move : moves) {
    if (move.output == nullptr || move.elements == 0) continue;
    const std::uint64_t input = published_location(context, move.source, move.piece).input;
    context.peers.read(move.source, input + static_cast<std::uint64_t>(move.first) * element_size, move.output,
                       static_cast<std::size_t>(move.elements) * element_size, context.describe);
  }
  barrier_step(context);
  return true;
}

void PeerWriteScope::check(int rank) const {
  if (context_.window.writes().may_write(rank)) return;
  throw PeerLost(context_.describe(rank) + " has given up the operation");
}

void write_to_peer(HostContext& context, int rank, std::uint64_t address, const void* source, std::size_t bytes) {
  const PeerWriteScope scope(context);
  scope.check(rank);
  context.peers.write(rank, address, source, bytes, context.describe);
}

void withdraw_tensors(HostContext& context) {
  WindowWrites& writes = context.window.writes();
  writes.withdraw();
  const Deadline deadline = deadline_after(kWithdrawTime);
  for (int rank = 0; rank < context.ranks(); ++rank) {
    const auto may_write = [&] { return writes.is_writing(rank) && context.peers.is_alive(rank); };
    while (rank != context.rank() && may_write() && Clock::now() < deadline) std::this_thread::sleep_for(50us);
    // The threads of a process that is killed do not end at once: one may still copy its last block.
    if (rank != context.rank() && writes.is_writing(rank)) std::this_thread::sleep_for(1ms);
  }
}

}  // namespace hvd
