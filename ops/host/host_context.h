// What a rank has for the collectives of its host (collectives.h): the shared window, the arena, access to the other
// ranks' memory, and memory and measurements kept between calls. The algorithms are free functions on it, one file
// each. Engine thread only; after an error of a window's wait it may only be destroyed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/execution/tensor_arena.h"
#include "ops/choice/host_choice.h"
#include "ops/host/peer_memory.h"
#include "ops/host/streaming_copy.h"
#include "ops/host/window.h"

namespace hvd {

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
            .wanted = wanted};
  }

  Window window;
  TensorArena* const arena;
  const WindowWait::Describe describe;
  PeerMemory peers;
  bool reads = false;  // all ranks can read each other's memory
  // Set before the first collective: the user's forms, equal on all ranks; and what logs a decision, on one rank.
  std::vector<SizeRange<HostForm>> wanted;
  std::function<void(const std::string&)> report;
  FormTrials allreduce_trials, allgather_trials, broadcast_trials, alltoall_trials;
  PublishingCopy publishing;                      // into this rank's slots
  PublishingCopy publishing_results;              // from scratch
  bool streams_outputs = false;                   // inside an OutputScope (chunks.h)
  std::vector<const void*> sources;               // what is reduced next: one per rank
  std::vector<std::byte> read_blocks;             // of all ranks, for reading_allreduce()
  std::vector<const std::byte*> resident_inputs;  // of all ranks: by piece, within a piece by rank
  std::vector<std::byte*> resident_outputs;
  alignas(64) std::byte scratch[kScratchBytes];
};

}  // namespace hvd
