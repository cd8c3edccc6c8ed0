// The memory that the ranks of a host map for their window (window.h): its layout, as one rank sees it.
//
//   Shared | a Rank for each rank | two slots of `room` bytes for each rank | two result areas of `room` bytes
//
// Initially zero, which is also the state of newly constructed objects: another rank may have begun already, so nothing
// is constructed here. Processes that map the same memory must have the same kLayout: a change of Rank, of Shared or of
// the order above increments it.
#pragma once

#include <sched.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "core/base/futex.h"

namespace hvd {

struct WindowMemory {
  static constexpr std::uint32_t kLayout = 1;
  static constexpr std::size_t kCpuWords = CPU_SETSIZE / 64;

  // What a rank can wait for: another rank has published a step, or has finished its part of a reduction.
  enum class Milestone { published, reduced };

  // Each signal has one writer, its rank.
  struct Rank {
    std::array<Signal, 2> published;  // by the step's parity
    Signal reduced;
    alignas(128) std::array<std::atomic<std::uint64_t>, kCpuWords> cpus;  // the rank's affinity mask
  };

  // Used if ranks outnumber CPUs. The writer of all_published is the last rank to publish the step, the writer of
  // all_reduced the one that finishes the last slice.
  struct Shared {
    Signal all_published;
    Signal all_reduced;
    alignas(128) std::atomic<std::uint32_t> published;  // sum of all ranks' steps: ranks * t when the last publishes t
    std::atomic<std::uint32_t> declined;                // 1: by some rank in the step that is being published
    alignas(128) std::atomic<std::uint32_t> claimed;    // slices of the reduction, by the ranks that reduce
    alignas(128) std::atomic<std::uint32_t> finished;
    alignas(128) std::atomic<std::uint32_t> layout;  // kLayout, set by the first rank
  };

  static std::size_t region_bytes(int ranks, std::size_t room);

  // For tests of the wrap-around: makes a new region look as if `number` steps and reductions had been taken in it.
  static void seed(std::span<std::byte> region, int ranks, std::uint32_t number);

  // `chunk_room`: in whole cache lines, at least one for each rank. Throws InvalidArgument for what does not
  // fit, and Mismatch if another rank of the host has another layout.
  WindowMemory(std::span<std::byte> region, int local_rank, int local_ranks, std::size_t chunk_room);

  // `number`: of the step, or of the reduction.
  Signal& signal(int of_rank, Milestone milestone, std::uint32_t number) const {
    return milestone == Milestone::published ? by_rank[of_rank].published[number & 1] : by_rank[of_rank].reduced;
  }
  std::byte* slot(int of_rank, std::uint32_t step) const {
    return slots + (static_cast<std::size_t>(of_rank) * 2 + (step & 1)) * room;
  }
  std::byte* result(std::uint32_t reduction) const { return results + (reduction & 1) * room; }
  // The CPUs on which at least one of the ranks may run.
  int count_cpus() const;

  const int rank;
  const int ranks;
  const std::size_t room;  // for a chunk
  Shared* const shared;
  Rank* const by_rank;
  std::byte* const slots;
  std::byte* const results;
};

static_assert(sizeof(WindowMemory::Rank) == 4 * 128 && alignof(WindowMemory::Rank) == 128);
static_assert(sizeof(WindowMemory::Shared) == 6 * 128 && alignof(WindowMemory::Shared) == 128);
static_assert(std::is_standard_layout_v<WindowMemory::Rank> && std::is_standard_layout_v<WindowMemory::Shared>);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free);

}  // namespace hvd
