// Collectives that only move data, by reading it directly from the other ranks' memory (peer_memory.h).
//
//   1. Step: every rank publishes the addresses of its inputs.
//   2. Each rank reads its data.
//   3. Step: no rank continues, and changes its inputs, before all ranks have read them.
//
// Bytes per rank: those that it receives, read and written once, where chunks copy them into the window and out of it;
// but the kernel looks up every page. Two barriers, whatever the size.
#include <cstring>

#include "ops/host/host_communicator.h"

namespace hvd {

bool HostCommunicator::move_by_reading(std::span<const Piece> inputs, std::span<const Move> moves,
                                       std::size_t element_size) {
  std::byte* slot = window_.open_step();
  bool readable = inputs.size() * sizeof(Place) <= window_.chunk_bytes();
  for (const Piece& piece : inputs) readable = readable && (piece.input != nullptr || piece.elements == 0);
  for (std::size_t p = 0; readable && p < inputs.size(); ++p) {
    const Place place{.input = reinterpret_cast<std::uint64_t>(inputs[p].input), .output = 0};
    std::memcpy(slot + p * sizeof(Place), &place, sizeof(Place));
  }
  *window_.local_note() = static_cast<std::byte>(readable ? Published::addresses : Published::chunk);
  window_.publish();
  window_.await_all();
  if (count_ranks(Published::addresses) < ranks()) return false;

  for (const Move& move : moves) {
    if (move.output == nullptr || move.elements == 0) continue;
    peers_.read(move.source,
                published_place(move.source, move.piece).input + static_cast<std::uint64_t>(move.first) * element_size,
                move.output, static_cast<std::size_t>(move.elements) * element_size, window_.describe());
  }
  meet();
  return true;
}

}  // namespace hvd
