// The shared memory of one host's ranks, and the protocol that synchronises their access to it.
//
// Every rank owns two slots of chunk_bytes, and all together own two result areas of that size. A collective is a
// sequence of steps, numbered by a counter that all ranks advance in the same way. In a step a rank may fill the slot
// of the step's parity, then publishes (even if it has no data), then reads what others published.
//
// Why a slot may be filled again without a barrier at the end of a collective:
//   1. open_step() of step t returns when every rank has published step t - 1.
//   2. A rank publishes step t - 1 after it has read all that it needs from the slots of step t - 2.
//   3. So in step t no rank reads the slots of step t - 2, which have the same parity, any more.
// No rank is ever more than one step ahead of another one.
//
// A note of a few words may be published with the number, in the cache line that all ranks wait for anyway: a small
// collective needs no slot. Notes exist twice, by the step's parity, and may be overwritten when a slot may.
//
// A step may be followed by a reduction, in which the ranks reduce slices of the published chunks into the result area
// of the reduction's parity. Reductions are counted separately, so that compared numbers are close when 32 bits wrap.
//   4. A rank may open step t + 1 after its part of the reduction r that belongs to step t, before it reads the result.
//      It opens step t + 2 only after it has read the result.
//   5. Reduction r + 2 is written by ranks that have seen all ranks publish step t + 2: the area of r is free again.
//
// Assignment of slices: with a CPU per rank every rank has the slice of its own number. If ranks outnumber CPUs, slices
// are claimed from a counter, so that ranks that have a CPU do the work; and all ranks sleep on one word that the last
// to arrive changes, instead of on each rank's. Before it does, it may write data that all others then read. The result
// is the same: a slice is reduced in rank order by any rank.
//
// With its number every rank publishes a call id, equal on all ranks that are in the same collective, and whether it
// declines. If all ask (Entry::asking) and one declines, all ranks take the first step, detect that at its end
// (await_all() throws Declined), and have done nothing else.
//
// Used by one thread per rank. All waits end with Timeout at the deadline of the collective, or as the AbortFlag says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "core/base/abort_flag.h"
#include "core/base/clock.h"
#include "core/base/futex.h"
#include "core/execution/backend.h"

namespace hvd {

struct WindowOptions {
  std::size_t chunk_bytes = 256 << 10;
  int cpus = 0;                  // available to the ranks of this host; 0: determined by the ranks together
  Duration timeout = 300s;       // of one collective
  Duration start_timeout = 30s;  // for all ranks to arrive in the constructor
};

class Window {
 public:
  // Returns "rank 2 on host-b (pid 1234)" for a rank of this host.
  using Describe = std::function<std::string(int local_rank)>;

  static std::size_t region_bytes(int ranks, std::size_t chunk_bytes);

  // For tests of the wrap-around: makes a new region look as if `number` steps and reductions had been taken in it.
  static void seed(std::span<std::byte> region, int ranks, std::uint32_t number);

  // `region` is initially zero, mapped by all ranks with equal options, and outlives the window. Returns when all ranks
  // of the host have called. `abort` may be null.
  Window(std::span<std::byte> region, int rank, int ranks, const WindowOptions& options, const AbortFlag* abort,
         Describe describe);

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  std::size_t chunk_bytes() const { return chunk_bytes_; }
  // Applies from the next collective on, equally on all ranks; limited to the room, and to what can be divided.
  void use_chunks(std::size_t bytes);
  bool oversubscribed() const { return claimed_; }  // ranks outnumber CPUs
  const Describe& describe() const { return describe_; }

  // Sets how the next collective begins. Required before each begin(), except of a collective that all ranks have
  // agreed on and that belongs to the previous one. Call ids have 31 bits.
  void enter(Entry entry, std::uint32_t call_id);
  // `what` (a literal) names the collective in errors.
  void begin(const char* what);
  // Declines the collective: replaces begin() and the first step.
  void decline(std::uint32_t call_id);
  // See Backend::set_late_callback.
  void set_late_callback(Duration timeout, std::function<bool()> late);

  // Advances to the next step; returns this rank's slot to fill.
  std::byte* open_step();
  // The note beside the step's number, up to kNoteBytes; undefined unless written.
  static constexpr std::size_t kNoteBytes = Signal::kPayloadBytes;
  std::byte* local_note();
  void publish();
  // publish() in two halves, if ranks outnumber CPUs: announce() returns true for the last rank, which can read the
  // data of all ranks and must call release() before the others continue. What it writes until then to result() or to
  // common_note(), others can read after await_all() until they announce the next step.
  bool announce();
  void release();
  std::byte* common_note() const;
  bool declined() const;  // called by the last rank, between the two
  // Wait until all ranks, or one, have published the current step. The first step of a collective that this rank asks
  // for must be awaited by await_all() or await_entry() before anything else: they throw Declined if a rank declined.
  void await_all();
  void await(int rank);
  // Calls await_all() if this rank asks and does not know yet whether the others do.
  void await_entry();
  const std::byte* slot(int rank) const { return slot_of(rank, step_); }
  const std::byte* note(int rank) const;

  // A reduction of the current step, which all ranks have published. The ranks together take each of slices() once.
  void open_reduction();
  int slices() const { return claimed_ ? kClaimedSlices : ranks_; }
  std::optional<int> take_slice();
  void finish_slice();
  // Returns when all slices of the reduction are finished.
  void await_reduction();
  std::byte* result() const { return results_ + (reduction_ & 1) * room_; }

 private:
  struct RankState;
  struct Shared;

  static constexpr int kClaimedSlices = 16;

  static Shared* shared_in(std::span<std::byte> region);
  static RankState* rank_states_in(std::span<std::byte> region);
  std::byte* slot_of(int rank, std::uint32_t step) const {
    return slots_ + (static_cast<std::size_t>(rank) * 2 + (step & 1)) * room_;
  }
  void meet(const WindowOptions& options);
  int count_cpus() const;
  enum class Milestone { published, reduced };
  static constexpr std::uint32_t kDeclined = std::uint32_t{1} << 31;  // in a tag, beside the call id
  std::uint32_t await_step();
  std::uint32_t wait_late(Signal& signal, std::uint32_t seen);
  Signal& signal_of(int rank, Milestone milestone) const;
  void await_value(Signal& signal, std::uint32_t target, Milestone milestone);
  [[noreturn]] void throw_timeout(std::uint32_t target, Milestone milestone) const;

  const int rank_;
  const int ranks_;
  const std::size_t room_;  // for a chunk, in each slot and area
  std::size_t chunk_bytes_ = room_;
  const Duration timeout_;
  const AbortFlag* const abort_;
  const Describe describe_;
  Shared* shared_;
  RankState* rank_states_;  // by rank
  std::byte* slots_;
  std::byte* results_;

  // Other ranks may not have entered this collective at all; those that have will progress soon.
  AdaptiveWait arrival_wait_{kOversubscribedPolicy};
  AdaptiveWait progress_wait_{kOversubscribedPolicy};
  bool arriving_ = true;  // since begin()
  bool claimed_ = true;   // ranks outnumber CPUs

  const char* what_ = "";
  Entry entry_ = Entry::settled;  // of the next collective, or of the current one in its first step
  std::uint32_t tag_ = 0;
  Duration late_timeout_ = Duration::max();
  std::function<bool()> late_;
  Duration wait_timeout_{};  // of one wait
  std::uint32_t step_ = 0;
  std::uint32_t settled_ = 0;  // the last step that all ranks are known to have published
  std::uint32_t reduction_ = 0;
  bool slice_taken_ = false;
};

}  // namespace hvd
