#include "core/flight/flight_recorder.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/base/error.h"
#include "core/base/text.h"

namespace hvd {

namespace {

constexpr std::string_view kGap = "..";

// Copies as much of the text as fits, terminated by 0.
template <std::size_t kWords>
void put_text(std::string_view text, std::array<std::atomic<std::uint64_t>, kWords>& into) {
  char shortened[kWords * 8];
  put_short_name(text, shortened, sizeof shortened);
  std::array<std::uint64_t, kWords> words;
  std::memcpy(words.data(), shortened, sizeof shortened);
  for (std::size_t i = 0; i < kWords; ++i) into[i].store(words[i], std::memory_order_relaxed);
}

SharedMemory map_inherited(int inherited) {
  FileDescriptor own(fcntl(inherited, F_DUPFD_CLOEXEC, 3));
  if (!own) throw Internal(error_text(errno));
  SharedMemory memory = SharedMemory::map(std::move(own), sizeof(FlightMemory));
  const auto& found = *reinterpret_cast<const FlightMemory*>(memory.data());
  if (found.magic != kFlightMagic) throw Internal("it is something else");
  if (found.layout != kFlightLayout) throw Internal("it comes from another version of hvdrun");
  fcntl(inherited, F_SETFD, FD_CLOEXEC);
  return memory;
}

}  // namespace

void put_short_name(std::string_view name, char* into, std::size_t size) {
  if (name.size() < size) {
    std::copy(name.begin(), name.end(), into);
    return std::fill(into + name.size(), into + size, '\0');
  }
  const std::size_t kept = size - 1 - kGap.size();
  std::size_t front = kept / 2, back = name.size() - (kept - front);
  while (front > 0 && continues_character(name[front])) --front;
  while (back < name.size() && continues_character(name[back])) ++back;
  char* const end = into + size;
  into = std::copy_n(name.begin(), front, into);
  into = std::copy(kGap.begin(), kGap.end(), into);
  into = std::copy(name.begin() + static_cast<std::ptrdiff_t>(back), name.end(), into);
  std::fill(into, end, '\0');
}

SharedMemory make_flight_memory() {
  SharedMemory memory = SharedMemory::create(sizeof(FlightMemory), "hvd-flight-recorder");
  auto& fresh = *reinterpret_cast<FlightMemory*>(memory.data());
  fresh.magic = kFlightMagic;
  fresh.layout = kFlightLayout;
  return memory;
}

FlightRecorder::FlightRecorder(int inherited, int rank, Duration stall_time) {
  if (inherited >= 0) {
    try {
      memory_ = std::make_shared<SharedMemory>(map_inherited(inherited));
    } catch (const Internal& error) {
      problem_ = "HVD_FLIGHT_RECORDER=" + std::to_string(inherited) + " cannot be used: " + error.what();
    }
  }
  if (!memory_) memory_ = std::make_shared<SharedMemory>(make_flight_memory());
  recorded_ = reinterpret_cast<FlightMemory*>(memory_->data());
  forget_all();
  recorded().rank.store(rank, std::memory_order_relaxed);
  recorded().stall_time.store(stall_time.count(), std::memory_order_relaxed);
  recorded().initializing.store(1, std::memory_order_relaxed);
  recorded().epoch.store(epoch_, std::memory_order_relaxed);
  recorded().pid.store(getpid(), std::memory_order_release);
}

// Another process may have had this memory before, as in a script that runs two programs, or this one in an earlier
// job. No other process writes now.
void FlightRecorder::forget_all() {
  FlightMemory& memory = recorded();
  const std::uint64_t begun = memory.begun.exchange(0);
  for (std::size_t i = 0; i < std::min<std::uint64_t>(begun + 1, kFlightRecords); ++i) memory.records[i].word.store(0);
  recovered();
  memory.end.state.store(static_cast<std::int32_t>(FlightEndState::none));
  static_assert(std::is_trivially_destructible_v<Metrics>);
  new (&memory.metrics) Metrics();
}

FlightEntry FlightRecorder::begin(const FlightWords& operation, std::uint64_t sequence, FlightState state) {
  FlightMemory& memory = recorded();
  const std::uint64_t number = memory.begun.fetch_add(1, std::memory_order_relaxed) + 1;
  FlightRecord& record = memory.records[number % kFlightRecords];
  constexpr auto relaxed = std::memory_order_relaxed;
  record.word.store(flight_word(number, FlightState::writing), relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  const std::int64_t now = flight_time();
  record.sequence.store(sequence, relaxed);
  record.submitted.store(now, relaxed);
  record.started.store(state == FlightState::performing ? now : 0, relaxed);
  record.ended.store(0, relaxed);
#pragma GCC unroll 16
  for (std::size_t i = 0; i < kFlightWords; ++i) record.operation[i].store(operation[i], relaxed);
  record.word.store(flight_word(number, state), std::memory_order_release);
  // The next record will be written soon, and may have left the cache since its slot was last used.
  const FlightRecord& next = memory.records[(number + 1) % kFlightRecords];
  __builtin_prefetch(&next, 1);
  __builtin_prefetch(reinterpret_cast<const char*>(&next) + 64, 1);
  return FlightEntry(record, number);
}

void FlightRecorder::left() {
  std::int64_t own = epoch_;
  recorded().epoch.compare_exchange_strong(own, 0, std::memory_order_relaxed);
}

void FlightRecorder::stalled(std::string_view warning) {
  const MutexLock lock(mutex_);
  FlightStall& stall = recorded().stall;
  const std::uint64_t changes = stall.changes.load(std::memory_order_relaxed);
  stall.changes.store(changes | 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  put_text(warning, stall.text);
  stall.stalled.store(1, std::memory_order_relaxed);
  stall.changes.store((changes | 1) + 1, std::memory_order_release);
}

void FlightRecorder::job_ended(const Status& reason, int own) {
  const MutexLock lock(mutex_);
  FlightEnd& end = recorded().end;
  if (end.state.load(std::memory_order_relaxed) != static_cast<std::int32_t>(FlightEndState::none)) return;
  if (reason.culprit() == own) return put_failure("gave up the job: " + reason.message());
  ended_by_another_ = {.when = Clock::now(), .culprit = reason.culprit()};
  end.culprit.store(reason.culprit(), std::memory_order_relaxed);
  end.state.store(static_cast<std::int32_t>(FlightEndState::consequence), std::memory_order_release);
}

std::optional<FlightRecorder::EndByAnother> FlightRecorder::ended_by_another() const {
  const MutexLock lock(mutex_);
  return ended_by_another_;
}

void FlightRecorder::failed(std::string_view cause) {
  const MutexLock lock(mutex_);
  FlightEnd& end = recorded().end;
  const bool is_consequence =
      end.state.load(std::memory_order_relaxed) == static_cast<std::int32_t>(FlightEndState::consequence);
  if (is_consequence || std::exchange(has_told_cause_, true)) return;
  put_failure(cause);
}

void FlightRecorder::put_failure(std::string_view cause) {
  FlightEnd& end = recorded().end;
  end.state.store(static_cast<std::int32_t>(FlightEndState::writing), std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  put_text(cause, end.text);
  end.state.store(static_cast<std::int32_t>(FlightEndState::local_failure), std::memory_order_release);
}

void FlightRecorder::recovered() {
  const MutexLock lock(mutex_);
  recorded().stall.stalled.store(0, std::memory_order_relaxed);
}

}  // namespace hvd
