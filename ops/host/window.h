// The shared memory of one host's ranks, and the protocol that synchronises their access to it.
//
// Every rank owns two slots of chunk_bytes, and all together own two result areas of that size (WindowMemory). A
// collective is a sequence of steps, numbered by a counter that all ranks advance in the same way. In a step a rank may
// fill the slot of the step's parity, then publishes (even if it has no data), then reads what others published.
//
// Why a slot may be filled again without a barrier at the end of a collective:
//   1. open_step() of step t returns when every rank has published step t - 1.
//   2. A rank publishes step t - 1 after it has read all that it needs from the slots of step t - 2.
//   3. So in step t no rank reads the slots of step t - 2, which have the same parity, any more.
// No rank is ever more than one step ahead of another one.
//
// A payload of a few words may be published with the number, in the cache line that all ranks wait for anyway: a small
// collective needs no slot. Payloads exist twice, by the step's parity, and may be overwritten when a slot may.
//
// A step may be followed by a reduction, in which the ranks reduce slices of the published chunks into the result area
// of the reduction's parity. Reductions are counted separately, so that compared numbers are close when 32 bits wrap.
//   4. A rank may open step t + 1 after its part of the reduction r that belongs to step t, before it reads the result.
//      It opens step t + 2 only after it has read the result.
//   5. Reduction r + 2 is written by ranks that have seen all ranks publish step t + 2: the area of r is free again.
//
// Assignment of slices: with a CPU per rank every rank has the slice of its own number. If ranks outnumber CPUs, slices
// are claimed from a counter, so that ranks that have a CPU do the work; and all ranks sleep on one word, which the
// last to arrive changes, instead of on each rank's. Before the last one changes it, it may write data that all others
// then read. The result is the same: a slice is reduced in rank order by any rank.
//
// Beside the step's number every rank publishes a call id, which is equal on all ranks that are in the same collective,
// and whether it declines. If ranks ask for a collective (EntryMode::asking) and one declines, all of them take the
// first step, and await_all() throws Declined at its end; nothing else has happened then.
//
// A collective may let the ranks write into each other's own memory (WindowWrites).
//
// Used by one thread per rank. Each wait ends with Timeout after WindowOptions::timeout without progress, or with the
// AbortFlag's reason.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "core/base/abort_flag.h"
#include "core/base/clock.h"
#include "core/base/futex.h"
#include "core/execution/backend.h"

namespace hvd {

// The memory that the ranks of a host map for their window: its layout, as one rank sees it.
//
//   Shared | a Rank for each rank | two slots of `room` bytes for each rank | two result areas of `room` bytes
//
// The memory is initially zero, which is also the state of newly constructed objects. Nothing is constructed in it
// here, since another rank may already have begun. Processes that map the same memory must have the same kLayout: a
// change of Rank, of Shared or of the order above increments it.
struct WindowMemory {
  static constexpr std::uint32_t kLayout = 3;

  // What a rank can wait for: another rank has published a step, or has finished its part of a reduction.
  enum class Milestone { published, reduced };

  // Each signal has one writer, its rank.
  struct Rank {
    std::array<Signal, 2> published;  // by the step's parity
    Signal reduced;
    alignas(128) std::atomic<std::uint32_t> writing;    // 1: this rank writes into others' memory, or is about to
    alignas(128) std::atomic<std::uint32_t> withdrawn;  // 1: others must not write into this rank's memory any more
  };

  // Used if ranks outnumber CPUs. The writer of all_published is the last rank to publish the step, the writer of
  // all_reduced the one that finishes the last slice.
  struct Shared {
    Signal all_published;
    Signal all_reduced;
    alignas(128) std::atomic<std::uint32_t> published;   // sum of all ranks' steps: ranks * t when the last publishes t
    std::atomic<std::uint32_t> declined;                 // 1: by some rank in the step that is being published
    alignas(128) std::atomic<std::uint32_t> next_slice;  // slices that ranks have taken, or tried to take
    alignas(128) std::atomic<std::uint32_t> finished;
    alignas(128) std::atomic<std::uint32_t> layout;  // kLayout, set by the first rank
  };

  static std::size_t region_bytes(int ranks, std::size_t room);

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

  const int rank;
  const int ranks;
  const std::size_t room;  // for a chunk
  Shared* const shared;
  Rank* const by_rank;
  std::byte* const slots;
  std::byte* const results;
};

static_assert(sizeof(WindowMemory::Rank) == 5 * 128 && alignof(WindowMemory::Rank) == 128);
static_assert(sizeof(WindowMemory::Shared) == 6 * 128 && alignof(WindowMemory::Shared) == 128);
static_assert(std::is_standard_layout_v<WindowMemory::Rank> && std::is_standard_layout_v<WindowMemory::Shared>);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free);

struct WindowOptions {
  std::size_t chunk_bytes = 256 << 10;
  CpuUse cpu_use{};              // of these ranks and those that compete with them; the same on all ranks
  Duration timeout = 300s;       // of each wait
  Duration start_timeout = 30s;  // for all ranks to arrive in the constructor
};

// How a rank waits for the others: it spins, then sleeps, until its timeout or the AbortFlag ends the wait. The
// engine's thread spins for a moment, so that it does not take the CPU from the program's threads; a caller, which has
// nothing else to do, spins for milliseconds unless another thread wants the CPU.
class WindowWait {
 public:
  using Milestone = WindowMemory::Milestone;
  // Returns "rank 2 on host-b (pid 1234)" for a rank of this host.
  using Describe = std::function<std::string(int local_rank)>;

  // `abort` may be null. The memory outlives the object.
  WindowWait(const WindowMemory& memory, const AbortFlag* abort, Describe describe);
  WindowWait(const WindowWait&) = delete;
  WindowWait& operator=(const WindowWait&) = delete;

  // Sets the number of CPUs available to the ranks. Until then ranks are assumed to outnumber CPUs.
  void set_cpu_use(const CpuUse& use);
  // Call before ending a collective that another thread may have begun.
  void set_driving_thread(DrivingThread driving_thread) { driving_thread_ = driving_thread; }
  void set_timeout(Duration timeout) { timeout_ = timeout; }  // of one wait
  // See Backend::set_late_callback.
  void set_late_callback(Duration timeout, std::function<bool()> late);

  // `what` (a literal) names the collective in errors. Until all ranks have arrived in it, waits use a separate policy:
  // a rank that has not entered the collective may be late, while those that have entered make progress soon.
  void begin(const char* what) {
    what_ = what;
    arriving_ = true;
  }
  void end_arrival() { arriving_ = false; }
  const char* what() const { return what_; }

  // Waits until the signal, of this milestone, has the number `target`. `asking`: the others may never arrive unless
  // the late callback asks them to decline. Throws Timeout, which names the ranks that are late, or the reason of the
  // AbortFlag.
  void await(Signal& signal, std::uint32_t target, Milestone milestone, bool asking);

 private:
  struct Waits {
    AdaptiveWait arrival{kOversubscribedPolicy};
    AdaptiveWait progress{kOversubscribedPolicy};
  };

  AdaptiveWait& current_wait() {
    Waits& waits = driving_thread_ == DrivingThread::caller ? caller_waits_ : engine_waits_;
    return arriving_ ? waits.arrival : waits.progress;
  }
  std::uint32_t wait_late(Signal& signal, std::uint32_t seen);
  [[noreturn]] void throw_timeout(std::uint32_t target, Milestone milestone) const;

  const WindowMemory& memory_;
  const AbortFlag* const abort_;
  const Describe describe_;
  Waits engine_waits_, caller_waits_;
  DrivingThread driving_thread_ = DrivingThread::engine;
  bool arriving_ = true;
  const char* what_ = "";
  Duration timeout_{};
  Duration late_timeout_ = Duration::max();
  std::function<bool()> late_;
};

// The reductions of a window. The ranks together take each of slices() once.
class WindowReduction {
 public:
  WindowReduction(const WindowMemory& memory, WindowWait& wait);

  void set_oversubscribed(bool oversubscribed) { oversubscribed_ = oversubscribed; }

  // Opens the reduction of the current step, which all ranks have published.
  void open();
  int slices() const { return oversubscribed_ ? kDynamicSlices : memory_.ranks; }
  std::optional<int> take_slice();
  void finish_slice();
  // Returns when all slices of the reduction are finished.
  void await();
  std::byte* result() const { return memory_.result(number_); }

 private:
  static constexpr int kDynamicSlices = 16;

  const WindowMemory& memory_;
  WindowWait& wait_;
  bool oversubscribed_ = true;  // ranks outnumber CPUs
  std::uint32_t number_;
  bool slice_taken_ = false;
};

// Tracks which ranks write into other ranks' tensors. A rank that fails in such a collective withdraws its memory
// before it returns its tensors to their owner: from then on no rank begins to write there, and is_writing() tells when
// the last write has ended.
class WindowWrites {
 public:
  explicit WindowWrites(const WindowMemory& memory) : memory_(memory) {}

  // Before and after this rank writes into the memory of other ranks.
  void begin();
  void end();
  // After begin() and before writing into that rank's memory: false if the rank has withdrawn it.
  bool may_write(int rank) const;
  // This rank has failed: its memory is no longer to be written. Some writes may still be in progress.
  void withdraw();
  bool is_writing(int rank) const { return memory_.by_rank[rank].writing.load(std::memory_order_seq_cst) != 0; }

 private:
  const WindowMemory& memory_;
};

class Window {
 public:
  // `region` is initially zero, mapped by all ranks with equal options, and outlives the window. Returns when all ranks
  // of the host have called. `abort` may be null.
  Window(std::span<std::byte> region, int rank, int ranks, const WindowOptions& options, const AbortFlag* abort,
         WindowWait::Describe describe);

  int rank() const { return memory_.rank; }
  int ranks() const { return memory_.ranks; }
  std::size_t chunk_bytes() const { return chunk_bytes_; }
  // Applies from the next collective on, equally on all ranks; limited to the room, and to what can be divided.
  void use_chunks(std::size_t bytes);
  bool oversubscribed() const { return oversubscribed_; }  // ranks outnumber CPUs

  // Sets how the next collective begins, before WindowWait::begin(). Required, except before a collective that all
  // ranks have agreed on and that belongs to the previous one. Call ids have 31 bits.
  void enter(EntryMode entry, std::uint32_t call_id, DrivingThread driving_thread);
  // Declines the collective: replaces WindowWait::begin() and the first step.
  void decline(std::uint32_t call_id);

  // Whether all ranks are known to have published this rank's last step, so that it can open the next without waiting.
  bool can_open_step() const { return last_complete_step_ == step_; }
  // Advances to the next step; returns this rank's slot to fill.
  std::byte* open_step();
  // The payload beside the step's number, up to kPayloadBytes; undefined unless written.
  static constexpr std::size_t kPayloadBytes = Signal::kPayloadBytes;
  std::byte* local_payload();
  void publish();
  // publish() for ranks that outnumber CPUs: unless a rank has declined, the last one to publish calls of_last() before
  // the others continue. of_last() may read the data of all ranks, and write to the reduction's result() or to
  // common_payload(), which the others can read after await_all() until they publish the next step.
  void publish(const auto& of_last) {
    if (!announce()) return;
    if (memory_.shared->declined.load(std::memory_order_relaxed) == 0) of_last();
    release();
  }
  std::byte* common_payload() const { return memory_.shared->all_published.payload.data(); }
  // Wait until all ranks, or one, have published the current step. The first step of a collective that this rank asks
  // for must be awaited by await_all() or await_entry() before anything else: they throw Declined if a rank declined.
  void await_all();
  void await(int rank);
  // Calls await_all() if this rank asks and does not know yet whether the others do.
  void await_entry();
  const std::byte* slot(int rank) const { return memory_.slot(rank, step_); }
  const std::byte* payload(int rank) const;

  WindowWait& waits() { return wait_; }
  WindowWrites& writes() { return writes_; }
  WindowReduction& reduction() { return reduction_; }

 private:
  using Milestone = WindowMemory::Milestone;
  static constexpr std::uint32_t kDeclined = std::uint32_t{1} << 31;  // in a tag, beside the call id

  bool announce();  // true for the last rank, which must call release()
  void release();
  std::uint32_t await_step();

  const WindowMemory memory_;
  WindowWait wait_;
  WindowReduction reduction_;
  WindowWrites writes_;
  std::size_t chunk_bytes_;
  bool oversubscribed_ = true;               // ranks outnumber CPUs
  EntryMode entry_ = EntryMode::negotiated;  // of the next collective, or of the current one in its first step
  std::uint32_t tag_ = 0;
  std::uint32_t step_ = 0;
  std::uint32_t last_complete_step_ = 0;  // the last step that all ranks are known to have published
};

}  // namespace hvd
