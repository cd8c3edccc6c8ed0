#include "ops/host/window.h"

#include <algorithm>
#include <new>
#include <vector>

#include "core/base/error.h"

namespace hvd {

namespace {

constexpr std::size_t kLine = 64;
constexpr std::size_t kAlignment = 4096;

std::size_t round_up(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

constexpr std::size_t kSharedBytes = kAlignment;
static_assert(sizeof(WindowMemory::Shared) <= kSharedBytes);

std::size_t rank_states_bytes(int ranks) {
  return round_up(static_cast<std::size_t>(ranks) * sizeof(WindowMemory::Rank));
}

std::span<std::byte> checked(std::span<std::byte> region, int rank, int ranks, std::size_t room) {
  if (ranks < 1 || rank < 0 || rank >= ranks || room % kLine != 0 || room < kLine * static_cast<std::size_t>(ranks)) {
    throw InvalidArgument("a host window needs chunks of whole cache lines, one for each rank at least");
  }
  if (region.size() < WindowMemory::region_bytes(ranks, room)) {
    throw InvalidArgument("the shared memory of this host's ranks is too small");
  }
  return region;
}

}  // namespace

std::size_t WindowMemory::region_bytes(int ranks, std::size_t room) {
  return kSharedBytes + rank_states_bytes(ranks) + (static_cast<std::size_t>(ranks) * 2 + 2) * room;
}

WindowMemory::WindowMemory(std::span<std::byte> region, int local_rank, int local_ranks, std::size_t chunk_room)
    : rank(local_rank),
      ranks(local_ranks),
      room(chunk_room),
      shared(std::launder(reinterpret_cast<Shared*>(checked(region, rank, ranks, room).data()))),
      by_rank(std::launder(reinterpret_cast<Rank*>(region.data() + kSharedBytes))),
      slots(region.data() + kSharedBytes + rank_states_bytes(ranks)),
      results(slots + static_cast<std::size_t>(ranks) * 2 * room) {
  std::uint32_t layout = 0;
  if (!shared->layout.compare_exchange_strong(layout, kLayout) && layout != kLayout) {
    throw Mismatch("the ranks of this host have versions of hvd that share memory in different layouts");
  }
}

WindowWait::WindowWait(const WindowMemory& memory, const AbortFlag* abort, Describe describe)
    : memory_(memory), abort_(abort), describe_(std::move(describe)) {}

void WindowWait::set_cpu_use(const CpuUse& use) {
  const AdaptiveWait brief(wait_policy_for(use)), long_one(caller_wait_policy_for(use));
  engine_waits_ = {.arrival = brief, .progress = brief};
  caller_waits_ = {.arrival = long_one, .progress = long_one};
}

void WindowWait::set_late_callback(Duration timeout, std::function<bool()> late) {
  late_timeout_ = timeout;
  late_ = std::move(late);
}

void WindowWait::await(Signal& signal, std::uint32_t target, Milestone milestone, bool asking) {
  std::uint32_t seen = signal.value.load(std::memory_order_acquire);
  if (!sequence_reached(seen, target)) {
    seen = current_wait().spin(signal, seen);
  }
  if (!sequence_reached(seen, target) && asking && late_) seen = wait_late(signal, seen);
  if (!sequence_reached(seen, target)) {
    const Deadline deadline = deadline_after(timeout_);
    do {
      const std::uint32_t now = signal.wait_change(seen, deadline, abort_);
      if (now == seen) throw_timeout(target, milestone);
      seen = now;
    } while (!sequence_reached(seen, target));
  }
  if (seen - target > 1) throw Internal(std::string(what_) + ": the ranks of this host are out of step");
}

std::uint32_t WindowWait::wait_late(Signal& signal, std::uint32_t seen) {
  for (;;) {
    const std::uint32_t now = signal.wait_change(seen, deadline_after(std::min(late_timeout_, timeout_)), abort_);
    if (now != seen || !late_()) return now;
  }
}

void WindowWait::throw_timeout(std::uint32_t target, Milestone milestone) const {
  std::string late;
  for (int rank = 0; rank < memory_.ranks; ++rank) {
    const Signal& signal = memory_.signal(rank, milestone, target);
    if (sequence_reached(signal.value.load(std::memory_order_relaxed), target)) continue;
    late += (late.empty() ? "" : ", ") + describe_(rank);
  }
  if (late.empty()) late = "the last rank, which has begun,";
  throw Timeout(std::string(what_) + " in shared memory: waited " + age_text(timeout_) + " for " + late +
                (milestone == Milestone::published ? " to begin" : " to do its part"));
}

WindowReduction::WindowReduction(const WindowMemory& memory, WindowWait& wait)
    : memory_(memory), wait_(wait), number_(memory.by_rank[memory.rank].reduced.value) {}

void WindowReduction::open() {
  ++number_;
  slice_taken_ = false;
}

std::optional<int> WindowReduction::take_slice() {
  if (oversubscribed_) {
    const std::uint32_t slice = memory_.shared->next_slice.fetch_add(1, std::memory_order_relaxed);
    if (slice < kDynamicSlices) return static_cast<int>(slice);
    memory_.by_rank[memory_.rank].reduced.value.store(number_, std::memory_order_release);
    return std::nullopt;
  }
  return std::exchange(slice_taken_, true) ? std::nullopt : std::optional(memory_.rank);
}

void WindowReduction::finish_slice() {
  if (!oversubscribed_) {
    memory_.by_rank[memory_.rank].reduced.store_and_wake(number_);
  } else if (memory_.shared->finished.fetch_add(1, std::memory_order_acq_rel) + 1 == kDynamicSlices) {
    memory_.shared->all_reduced.store_and_wake(number_);
  }
}

void WindowReduction::await() {
  constexpr auto kReduced = WindowMemory::Milestone::reduced;
  if (oversubscribed_) {
    wait_.await(memory_.shared->all_reduced, number_, kReduced, false);
    return;
  }
  for (int rank = 0; rank < memory_.ranks; ++rank) {
    wait_.await(memory_.by_rank[rank].reduced, number_, kReduced, false);
  }
}

// Either this rank sees that the other has withdrawn, or the other sees that this rank writes (Dekker).
void WindowWrites::begin() { memory_.by_rank[memory_.rank].writing.store(1, std::memory_order_seq_cst); }

bool WindowWrites::may_write(int rank) const {
  return memory_.by_rank[rank].withdrawn.load(std::memory_order_seq_cst) == 0;
}

void WindowWrites::end() { memory_.by_rank[memory_.rank].writing.store(0, std::memory_order_release); }

void WindowWrites::withdraw() { memory_.by_rank[memory_.rank].withdrawn.store(1, std::memory_order_seq_cst); }

Window::Window(std::span<std::byte> region, int rank, int ranks, const WindowOptions& options, const AbortFlag* abort,
               WindowWait::Describe describe)
    : memory_(region, rank, ranks, options.chunk_bytes),
      wait_(memory_, abort, std::move(describe)),
      reduction_(memory_, wait_),
      writes_(memory_),
      chunk_bytes_(memory_.room) {
  const WindowMemory::Rank& own = memory_.by_rank[rank];
  const std::uint32_t even = own.published[0].value, odd = own.published[1].value;
  step_ = last_complete_step_ = sequence_reached(even, odd) ? even : odd;

  wait_.begin("start");
  wait_.set_timeout(options.start_timeout);
  open_step();
  publish();
  await_all();
  wait_.set_timeout(options.timeout);

  wait_.set_cpu_use(options.cpu_use);
  oversubscribed_ = options.cpu_use.oversubscribed();
  reduction_.set_oversubscribed(oversubscribed_);
}

void Window::use_chunks(std::size_t bytes) {
  chunk_bytes_ = std::clamp(bytes / kLine * kLine, kLine * static_cast<std::size_t>(ranks()), memory_.room);
}

void Window::enter(EntryMode entry, std::uint32_t call_id, DrivingThread driving_thread) {
  wait_.set_driving_thread(driving_thread);
  entry_ = entry;
  tag_ = call_id & ~kDeclined;
}

void Window::decline(std::uint32_t call_id) {
  wait_.begin("a collective that this rank declines");
  wait_.set_driving_thread(DrivingThread::engine);
  entry_ = EntryMode::negotiated;
  open_step();
  tag_ = call_id | kDeclined;
  if (oversubscribed_) memory_.shared->declined.store(1, std::memory_order_relaxed);  // announced with the step
  publish();
  await_all();
}

std::byte* Window::open_step() {
  if (last_complete_step_ != step_) await_step();
  ++step_;
  return memory_.slot(memory_.rank, step_);
}

std::byte* Window::local_payload() { return memory_.by_rank[memory_.rank].published[step_ & 1].payload.data(); }
const std::byte* Window::payload(int rank) const { return memory_.by_rank[rank].published[step_ & 1].payload.data(); }

void Window::publish() {
  if (oversubscribed_) return publish([] {});
  Signal& own = memory_.by_rank[memory_.rank].published[step_ & 1];
  own.tag = tag_;
  own.store_and_wake(step_);
}

bool Window::announce() {
  Signal& own = memory_.by_rank[memory_.rank].published[step_ & 1];
  own.tag = tag_;
  own.store_and_wake(step_);
  const std::uint32_t sum = memory_.shared->published.fetch_add(1, std::memory_order_acq_rel) + 1;
  return sum == step_ * static_cast<std::uint32_t>(memory_.ranks);
}

void Window::release() {
  WindowMemory::Shared& shared = *memory_.shared;
  const bool declined = shared.declined.load(std::memory_order_relaxed) != 0;
  // All ranks have left the previous reduction, or they would not have announced this step.
  shared.next_slice.store(0, std::memory_order_relaxed);
  shared.finished.store(0, std::memory_order_relaxed);
  shared.all_published.tag = (tag_ & ~kDeclined) | (declined ? kDeclined : 0);
  shared.declined.store(0, std::memory_order_relaxed);
  shared.all_published.store_and_wake(step_);
}

// Returns the bits in which any rank's tag differs from this rank's.
std::uint32_t Window::await_step() {
  const bool asking = entry_ == EntryMode::asking;
  std::uint32_t differences = 0;
  if (oversubscribed_) {
    wait_.await(memory_.shared->all_published, step_, Milestone::published, asking);
    differences = memory_.shared->all_published.tag ^ tag_;
  } else {
    for (int rank = 0; rank < memory_.ranks; ++rank) {
      Signal& signal = memory_.by_rank[rank].published[step_ & 1];
      wait_.await(signal, step_, Milestone::published, asking);
      differences |= signal.tag ^ tag_;
    }
  }
  last_complete_step_ = step_;
  return differences;
}

void Window::await_all() {
  const std::uint32_t differences = await_step();
  wait_.end_arrival();
  if (differences == 0) {
    entry_ = EntryMode::negotiated;
    return;
  }
  if ((differences & ~kDeclined) != 0) {
    throw Internal(std::string(wait_.what()) + ": the ranks of this host are in different collectives");
  }
  if (std::exchange(entry_, EntryMode::negotiated) == EntryMode::asking) throw Declined();
}

void Window::await_entry() {
  if (entry_ == EntryMode::asking) await_all();
}

void Window::await(int rank) {
  wait_.await(memory_.by_rank[rank].published[step_ & 1], step_, Milestone::published, entry_ == EntryMode::asking);
}

}  // namespace hvd
