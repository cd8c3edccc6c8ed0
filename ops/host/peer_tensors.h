// Access to the other ranks' tensors without a copy in the window: ranks publish the locations of their tensors, in the
// arena or in their own memory, instead of the content. Trials decide for which sizes a collective does so (PathTrials,
// ops/choice/host_choice.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/operation/collective_call.h"
#include "ops/choice/host_choice.h"
#include "ops/host/host_context.h"

namespace hvd {

// The location of a piece: offsets in the rank's part of the arena, or addresses in its memory.
struct TensorLocation {
  std::uint64_t input;
  std::uint64_t output;
};

// Publishes the locations of the pieces instead of their content, if the other ranks can access all of them: in the
// arena or, if the path is peer_memory, in this rank's memory. Returns false if nothing was published.
bool publish_locations(HostContext& context, std::span<const Piece> pieces, std::size_t element_size, DataPath path);
// The number of ranks that published this kind in the current step.
int count_ranks(const HostContext& context, Published kind);
// The published locations: by piece, within a piece by rank.
std::vector<TensorLocation> published_locations(const HostContext& context, std::size_t pieces);

// Takes a step in which every rank publishes these locations in its memory, if they are accessible. Returns whether all
// ranks have published theirs.
bool exchange_addresses(HostContext& context, std::span<const TensorLocation> locations, bool accessible);

// Data that this rank reads from another rank's input.
struct Move {
  int source;
  std::size_t piece;
  std::int64_t first;
  void* output;
  std::int64_t elements;
};

// A collective that only moves data, by reading it directly from the other ranks' memory (peer_memory.h).
//
//   1. Step: every rank publishes the addresses of its inputs.
//   2. Each rank reads its data.
//   3. Step: no rank continues, and changes its inputs, before all ranks have read them.
//
// Bytes per rank: those that it receives, read and written once, where chunks copy them into the window and out of it;
// but the kernel looks up every page. Two barriers, whatever the size.
//
// `inputs` are those that other ranks may read. Returns false, on all ranks, if some rank has inputs that cannot be
// read; nothing has been moved then.
bool move_by_reading(HostContext& context, std::span<const Piece> inputs, std::span<const Move> moves,
                     std::size_t element_size);

// In its scope this rank writes into other ranks' tensors.
class PeerWriteScope {
 public:
  explicit PeerWriteScope(HostContext& context) : context_(context) { context.window.writes().begin(); }
  ~PeerWriteScope() { context_.window.writes().end(); }
  PeerWriteScope(const PeerWriteScope&) = delete;
  PeerWriteScope& operator=(const PeerWriteScope&) = delete;

  // Before each write. Throws PeerLost if that rank has failed.
  void check(int rank) const;

 private:
  HostContext& context_;
};

// Writes into another rank's output. Throws PeerLost if that rank has failed.
void write_to_peer(HostContext& context, int rank, std::uint64_t address, const void* source, std::size_t bytes);
// To be called after a failure in a collective in which others may write into this rank's tensors. Returns when none of
// them writes any more, and none will, so that the tensors can be returned to their owner. Waits no longer than
// kWithdrawTime for a rank that is stopped inside a write, which may still write one block when it continues.
inline constexpr Duration kWithdrawTime = 2s;
void withdraw_tensors(HostContext& context);

// Calls body(), in which others may write into this rank's tensors.
template <typename Body>
void while_others_write(HostContext& context, const Body& body) {
  try {
    body();
  } catch (const Declined&) {
    throw;  // thrown before any rank has written
  } catch (...) {
    withdraw_tensors(context);
    throw;
  }
}

}  // namespace hvd
