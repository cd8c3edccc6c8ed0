#include "ops/host/window.h"

#include <sched.h>

#include <algorithm>
#include <array>
#include <bit>
#include <new>
#include <utility>
#include <vector>

#include "core/base/cpus.h"
#include "core/base/error.h"
#include "core/base/wait_policy.h"

namespace hvd {

namespace {

constexpr std::size_t kAlignment = 4096;
constexpr std::size_t kCpuWords = CPU_SETSIZE / 64;

std::size_t round_up(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

// Initially zero. Each signal has one writer, its rank.
struct Window::RankState {
  std::array<Signal, 2> published;  // by the step's parity
  Signal reduced;
  alignas(128) std::array<std::atomic<std::uint64_t>, kCpuWords> cpus;  // this rank's affinity mask
};

// Used if ranks outnumber CPUs. The writer of all_published is the last rank to publish the step, the writer of
// all_reduced the one that finishes the last slice.
struct Window::Shared {
  Signal all_published;
  Signal all_reduced;
  alignas(128) std::atomic<std::uint32_t> published;  // sum of all ranks' steps: ranks * t when the last publishes t
  std::atomic<std::uint32_t> declined;                // 1: by some rank in the step that is being published
  alignas(128) std::atomic<std::uint32_t> claimed;    // slices of the reduction, by the ranks that reduce
  alignas(128) std::atomic<std::uint32_t> finished;
};

std::size_t Window::region_bytes(int ranks, std::size_t chunk_bytes) {
  const auto count = static_cast<std::size_t>(ranks);
  return round_up(sizeof(Shared)) + round_up(count * sizeof(RankState)) + (count * 2 + 2) * chunk_bytes;
}

// Zero bytes equal constructed objects, and another rank may have begun already: nothing is constructed.
Window::Shared* Window::shared_in(std::span<std::byte> region) {
  return std::launder(reinterpret_cast<Shared*>(region.data()));
}

Window::RankState* Window::rank_states_in(std::span<std::byte> region) {
  return std::launder(reinterpret_cast<RankState*>(region.data() + round_up(sizeof(Shared))));
}

void Window::seed(std::span<std::byte> region, int ranks, std::uint32_t number) {
  Shared* shared = shared_in(region);
  shared->all_published.value = number;
  shared->all_reduced.value = number;
  shared->published = number * static_cast<std::uint32_t>(ranks);
  for (int rank = 0; rank < ranks; ++rank) {
    RankState& state = rank_states_in(region)[rank];
    state.published[number & 1].value = number;
    state.published[(number - 1) & 1].value = number - 1;
    state.reduced.value = number;
  }
}

Window::Window(std::span<std::byte> region, int rank, int ranks, const WindowOptions& options, const AbortFlag* abort,
               Describe describe)
    : rank_(rank),
      ranks_(ranks),
      room_(options.chunk_bytes),
      timeout_(options.timeout),
      abort_(abort),
      describe_(std::move(describe)) {
  static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<std::uint32_t>::is_always_lock_free);
  if (ranks < 1 || rank < 0 || rank >= ranks || room_ % 64 != 0 || room_ < 64 * static_cast<std::size_t>(ranks)) {
    throw InvalidArgument("a host window needs chunks of whole cache lines, one for each rank at least");
  }
  if (region.size() < region_bytes(ranks, room_)) {
    throw InvalidArgument("the shared memory of this host's ranks is too small");
  }
  shared_ = shared_in(region);
  rank_states_ = rank_states_in(region);
  slots_ = region.data() + round_up(sizeof(Shared)) + round_up(static_cast<std::size_t>(ranks) * sizeof(RankState));
  results_ = slots_ + static_cast<std::size_t>(ranks) * 2 * room_;
  const RankState& own = rank_states_[rank_];
  const std::uint32_t even = own.published[0].value, odd = own.published[1].value;
  step_ = settled_ = sequence_reached(even, odd) ? even : odd;
  reduction_ = own.reduced.value;
  meet(options);
}

void Window::use_chunks(std::size_t bytes) {
  constexpr std::size_t kLine = 64;
  chunk_bytes_ = std::clamp(bytes / kLine * kLine, kLine * static_cast<std::size_t>(ranks_), room_);
}

// All ranks must agree whether slices are claimed, but each sees only its own affinity mask: a launcher may have bound
// every rank to a different core. Therefore the masks are shared and counted together.
void Window::meet(const WindowOptions& options) {
  const std::vector<std::uint64_t> own = allowed_cpus();
  for (std::size_t word = 0; word < std::min(own.size(), kCpuWords); ++word)
    rank_states_[rank_].cpus[word] |= own[word];
  what_ = "start";
  wait_timeout_ = options.start_timeout;
  open_step();
  publish();
  await_all();
  wait_timeout_ = timeout_;

  const int cpus = options.cpus > 0 ? options.cpus : count_cpus();
  const WaitPolicy policy = wait_policy_for(ranks_, cpus);
  arrival_wait_ = AdaptiveWait(policy);
  progress_wait_ = AdaptiveWait(policy);
  claimed_ = ranks_ > cpus;
}

int Window::count_cpus() const {
  int count = 0;
  for (std::size_t word = 0; word < kCpuWords; ++word) {
    std::uint64_t together = 0;
    for (int rank = 0; rank < ranks_; ++rank) together |= rank_states_[rank].cpus[word].load(std::memory_order_relaxed);
    count += std::popcount(together);
  }
  return count;
}

void Window::enter(Entry entry, std::uint32_t call_id) {
  entry_ = entry;
  tag_ = call_id & ~kDeclined;
}

void Window::begin(const char* what) {
  what_ = what;
  arriving_ = true;
}

void Window::decline(std::uint32_t call_id) {
  begin("a collective that this rank declines");
  entry_ = Entry::settled;
  open_step();
  tag_ = call_id | kDeclined;
  if (claimed_) shared_->declined.store(1, std::memory_order_relaxed);  // announced with the step
  publish();
  await_all();
}

void Window::set_late_callback(Duration timeout, std::function<bool()> late) {
  late_timeout_ = timeout;
  late_ = std::move(late);
}

std::byte* Window::open_step() {
  if (settled_ != step_) await_step();
  ++step_;
  return slot_of(rank_, step_);
}

Signal& Window::signal_of(int rank, Milestone milestone) const {
  return milestone == Milestone::published ? rank_states_[rank].published[step_ & 1] : rank_states_[rank].reduced;
}

std::byte* Window::local_note() { return signal_of(rank_, Milestone::published).payload.data(); }
const std::byte* Window::note(int rank) const { return signal_of(rank, Milestone::published).payload.data(); }

std::byte* Window::common_note() const { return shared_->all_published.payload.data(); }

void Window::publish() {
  if (!claimed_) {
    Signal& own = signal_of(rank_, Milestone::published);
    own.tag = tag_;
    own.store_and_wake(step_);
  } else if (announce()) {
    release();
  }
}

bool Window::announce() {
  Signal& own = signal_of(rank_, Milestone::published);
  own.tag = tag_;
  own.store_and_wake(step_);
  const std::uint32_t sum = shared_->published.fetch_add(1, std::memory_order_acq_rel) + 1;
  return sum == step_ * static_cast<std::uint32_t>(ranks_);
}

void Window::release() {
  // All ranks have left the previous reduction, or they would not have announced this step.
  shared_->claimed.store(0, std::memory_order_relaxed);
  shared_->finished.store(0, std::memory_order_relaxed);
  shared_->all_published.tag = (tag_ & ~kDeclined) | (declined() ? kDeclined : 0);
  shared_->declined.store(0, std::memory_order_relaxed);
  shared_->all_published.store_and_wake(step_);
}

bool Window::declined() const { return shared_->declined.load(std::memory_order_relaxed) != 0; }

// Returns the bits in which any rank's tag differs from this rank's.
std::uint32_t Window::await_step() {
  std::uint32_t differences = 0;
  if (claimed_) {
    await_value(shared_->all_published, step_, Milestone::published);
    differences = shared_->all_published.tag ^ tag_;
  } else {
    for (int rank = 0; rank < ranks_; ++rank) {
      Signal& signal = signal_of(rank, Milestone::published);
      await_value(signal, step_, Milestone::published);
      differences |= signal.tag ^ tag_;
    }
  }
  settled_ = step_;
  return differences;
}

void Window::await_all() {
  const std::uint32_t differences = await_step();
  arriving_ = false;
  if (differences == 0) {
    entry_ = Entry::settled;
    return;
  }
  if ((differences & ~kDeclined) != 0) {
    throw Internal(std::string(what_) + ": the ranks of this host are in different collectives");
  }
  if (std::exchange(entry_, Entry::settled) == Entry::asking) throw Declined();
}

void Window::await_entry() {
  if (entry_ == Entry::asking) await_all();
}

void Window::await(int rank) { await_value(signal_of(rank, Milestone::published), step_, Milestone::published); }

void Window::open_reduction() {
  ++reduction_;
  slice_taken_ = false;
}

std::optional<int> Window::take_slice() {
  if (claimed_) {
    const std::uint32_t slice = shared_->claimed.fetch_add(1, std::memory_order_relaxed);
    if (slice < kClaimedSlices) return static_cast<int>(slice);
    rank_states_[rank_].reduced.value.store(reduction_, std::memory_order_release);
    return std::nullopt;
  }
  return std::exchange(slice_taken_, true) ? std::nullopt : std::optional(rank_);
}

void Window::finish_slice() {
  if (!claimed_) {
    rank_states_[rank_].reduced.store_and_wake(reduction_);
  } else if (shared_->finished.fetch_add(1, std::memory_order_acq_rel) + 1 == kClaimedSlices) {
    shared_->all_reduced.store_and_wake(reduction_);
  }
}

void Window::await_reduction() {
  if (claimed_) {
    await_value(shared_->all_reduced, reduction_, Milestone::reduced);
    return;
  }
  for (int rank = 0; rank < ranks_; ++rank) {
    await_value(rank_states_[rank].reduced, reduction_, Milestone::reduced);
  }
}

void Window::await_value(Signal& signal, std::uint32_t target, Milestone milestone) {
  std::uint32_t seen = signal.value.load(std::memory_order_acquire);
  if (!sequence_reached(seen, target)) {
    seen = (arriving_ ? arrival_wait_ : progress_wait_).spin(signal, seen);
  }
  if (!sequence_reached(seen, target) && entry_ == Entry::asking && late_) seen = wait_late(signal, seen);
  if (!sequence_reached(seen, target)) {
    const Deadline deadline = deadline_after(wait_timeout_);
    do {
      const std::uint32_t now = signal.wait_change(seen, deadline, abort_);
      if (now == seen) throw_timeout(target, milestone);
      seen = now;
    } while (!sequence_reached(seen, target));
  }
  if (seen - target > 1) throw Internal(std::string(what_) + ": the ranks of this host are out of step");
}

// The others may never arrive unless they are asked to decline.
std::uint32_t Window::wait_late(Signal& signal, std::uint32_t seen) {
  for (;;) {
    const std::uint32_t now = signal.wait_change(seen, deadline_after(std::min(late_timeout_, wait_timeout_)), abort_);
    if (now != seen || !late_()) return now;
  }
}

void Window::throw_timeout(std::uint32_t target, Milestone milestone) const {
  std::string late;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (sequence_reached(signal_of(rank, milestone).value.load(std::memory_order_relaxed), target)) continue;
    late += (late.empty() ? "" : ", ") + describe_(rank);
  }
  if (late.empty()) late = "the last rank, which has begun,";
  const auto waited = std::to_string(seconds(wait_timeout_));
  throw Timeout(std::string(what_) + " in shared memory: waited " + waited.substr(0, waited.find('.') + 2) + " s for " +
                late + (milestone == Milestone::published ? " to begin" : " to do its part"));
}

}  // namespace hvd
