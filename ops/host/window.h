// The shared memory of one host's ranks, and the one protocol by which they take turns in it.
//
// Every rank owns two slots of chunk_bytes, and all together own two result areas of that size. A collective is a
// sequence of steps, numbered by a counter that all ranks advance alike. In a step a rank may fill the slot of the
// step's parity, then publishes (even if it had nothing to say), then reads what others published.
//
// Why a slot may be filled again without a barrier at the end of a collective:
//   1. open_step() of step t returns when every rank has published step t - 1.
//   2. A rank publishes step t - 1 after it has read all that it wanted from the slots of step t - 2.
//   3. So in step t the slots of step t - 2, which have the same parity, are read by nobody any more.
// No rank is ever more than one step ahead of another one.
//
// A few words may travel with the number itself, in the cache line that everyone waits for anyway: a small collective
// needs no slot. They lie twice, by the step's parity, and are free again when a slot is.
//
// A step may be followed by a round, in which the ranks reduce slices of the published chunks into the result area of
// the round's parity. Rounds are counted separately, so that numbers compared are never far apart when 32 bits wrap.
//   4. A rank may open step t + 1 between the reduction and the reading of round r that belongs to step t. It opens
//      step t + 2 only after that reading.
//   5. Round r + 2 is written by ranks that have seen everyone publish step t + 2: the area of round r is free again.
//
// Who does which slice: with a CPU for each rank everyone has the slice of its own number. If ranks outnumber CPUs,
// slices are claimed from a counter, so that the work is done by those who have a CPU; and everybody sleeps on one word
// that the last to arrive changes, instead of on each rank's. Before it does, it may write what all the others then
// read. The result is the same: a slice is reduced in rank order by whoever does it.
//
// Where ranks are in groups (domains.h), a step is followed by two rounds: each group reduces its own chunks into an
// area of its own, then each makes the result of all groups' areas.
//   6. A rank publishes step t + 1 after it has made its part of the results of step t: the groups' areas are free when
//      everyone has published step t + 1.
//   7. Results, which are read later, lie in an area by the parity of the step, free again when step t + 2 is
//   published.
//
// With its number every rank publishes a call id, equal on all ranks that are in the same collective; and
// whether it takes part at all. If all ask (Entry::asking) and one declines, the first step has been taken by everyone,
// everyone finds that out at its end (await_all() throws Declined), and nobody has done anything else.
//
// Used by one thread per rank. All waits end with Timeout at the deadline of the collective, or as the AbortFlag says.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/abort_flag.h"
#include "core/base/clock.h"
#include "core/base/futex.h"
#include "core/execution/backend.h"
#include "ops/host/domains.h"

namespace hvd {

struct WindowOptions {
  std::size_t chunk_bytes = 256 << 10;
  int cpus = 0;                  // that the ranks of this host have among them; 0: they find out together
  Domains groups{};              // of ranks near each other; none: found out together, too
  Duration timeout = 300s;       // of one collective
  Duration start_timeout = 30s;  // for all ranks to come together in the constructor
};

class Window {
 public:
  // "rank 2 on host-b (pid 1234)" for a rank of this host.
  using Describe = std::function<std::string(int local_rank)>;

  static std::size_t region_bytes(int ranks, std::size_t chunk_bytes);

  // Makes a fresh region look as if `number` steps and rounds had been taken in it: how tests reach the wrap-around.
  static void seed(std::span<std::byte> region, int ranks, std::uint32_t number);

  // `region` is zero when fresh, mapped by all ranks with equal options, and outlives the window. Returns when all
  // ranks of the host are here. `abort` may be null.
  Window(std::span<std::byte> region, int rank, int ranks, const WindowOptions& options, const AbortFlag* abort,
         Describe describe);

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  std::size_t chunk_bytes() const { return chunk_bytes_; }
  // From the next collective on, on all ranks alike: at most what there is room for, and at least what can be divided.
  void use_chunks(std::size_t bytes);
  bool oversubscribed() const { return claimed_; }  // ranks outnumber CPUs
  const Describe& describe() const { return describe_; }

  // On what terms the next collective begins: each begin() needs it anew, or is one that all have agreed on and that
  // belongs to the one before. Tickets have 31 bits.
  void enter(Entry entry, std::uint32_t call_id);
  // `what` (a literal) names the collective in errors.
  void begin(const char* what);
  // Instead of begin() and the first step.
  void decline(std::uint32_t call_id);
  // See Backend::set_late_callback.
  void set_late_callback(Duration timeout, std::function<bool()> late);

  // The step after the current one becomes the current one; returns this rank's slot to fill.
  std::byte* open_step();
  // What goes beside the step's number, up to kNoteBytes; undefined if nothing is written there.
  static constexpr std::size_t kNoteBytes = Signal::kPayloadBytes;
  std::byte* local_note();
  void publish();
  // publish() in two halves, if ranks outnumber CPUs: announce() is true for the last rank, which finds published what
  // everyone has and calls release() before anyone else goes on. What it writes until then to result() or to
  // common_note(), others find there after await_all(), and as long as they have not announced the next step.
  bool announce();
  void release();
  std::byte* common_note() const;
  bool declined() const;  // by the last rank, between the two
  // Everyone, or one rank, has published the current step. The first step of a collective that this rank asks for is to
  // be awaited by await_all() or await_entry() before anything else is done: throws Declined if another rank declined.
  void await_all();
  void await(int rank);
  // await_all() if this rank asks and does not know yet whether the others do.
  void await_entry();
  const std::byte* slot(int rank) const { return slot_of(rank, step_); }
  const std::byte* note(int rank) const;

  // A round on the current step, which everyone has published. The ranks together take each of slices() once.
  void open_reduction();
  int slices() const { return claimed_ ? kClaimedSlices : ranks_; }
  std::optional<int> take_slice();
  void finish_slice();
  // All slices of the round are finished.
  void await_reduction();
  std::byte* result() const { return results_ + (reduction_ & 1) * room_; }

  // At least one; of ranks with a CPU each if there are several.
  const Domains& groups() const { return domains_; }
  std::byte* domain_partial(std::size_t group) const { return domain_areas_ + group * 3 * room_; }
  std::byte* domain_result(std::size_t group) const { return domain_partial(group) + (1 + (step_ & 1)) * room_; }

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
  std::vector<CpuSet> cpus_of_ranks() const;
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
  std::byte* domain_areas_;
  Domains domains_;

  // The others may not have come to this collective at all; those who have are not far behind.
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
  std::uint32_t settled_ = 0;  // the last step that everyone is known to have published
  std::uint32_t reduction_ = 0;
  bool slice_taken_ = false;
};

}  // namespace hvd
