// Records what this rank's operations did when, in a file for chrome://tracing or https://ui.perfetto.dev.
//
// The file is an array of trace events (Google, "Trace Event Format"), with one row for each name:
//
//   NEGOTIATE_ALLREDUCE   from the submission until all ranks are ready; in it, a numbered mark for each rank whose
//                         request has arrived, if it was a full request
//   ALLREDUCE             then the operation, with dtype and shape at its end; in it, the backend's part
//   CYCLE_START           on request: a mark for each answer of the coordinator
//
// These are Horovod's names, for the programs that read its files.
//
// Recording only appends an event to a list; a separate thread, which runs while a timeline is written, converts events
// to text. After each of its writes the file is complete JSON. A failed write (a full disk) ends the timeline with a
// warning, and nothing else.
#pragma once

#include <atomic>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/base/futex.h"
#include "core/base/log.h"
#include "core/base/mutex.h"
#include "core/operation/operation_spec.h"

namespace hvd {

struct TraceEvent {
  enum class Kind : char { begin = 'B', end = 'E', rank = 'X', round = 'i' };
  Kind kind;
  std::string name{};      // of the tensor; selects the row
  std::string activity{};  // begin: the activity; rank: its number
  std::string dtype{};     // end: only at the end of an operation
  std::string shape{};
  TimePoint time = Clock::now();
};

// Horovod's names: of the negotiation of an operation, of the operation, and of a backend's part in it, if Horovod has
// that backend.
std::string negotiation_activity(const OperationSpec& spec);
std::string operation_activity(const OperationSpec& spec);
std::string backend_activity(const std::string& backend, const OperationSpec& spec);

class Timeline {
 public:
  // `log` outlives it.
  explicit Timeline(const Log& log) : log_(log) {}
  ~Timeline() { stop(); }
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  // start() and stop(): any thread. An existing file is overwritten; no effect if this file is being written already.
  // Throws InvalidArgument if it cannot be written, or another one is being written.
  void start(const std::string& path, bool marks_rounds);
  // Returns when everything is in the file. No effect if no timeline is being written.
  void stop();

  // Check this before creating names and texts for the calls below, which have no effect otherwise.
  bool active() const { return active_.load(std::memory_order_relaxed); }
  bool marks_rounds() const { return active() && marks_rounds_.load(std::memory_order_relaxed); }

  // The thread that drives the engine.
  void begin(const std::string& name, std::string activity) {
    record({.kind = TraceEvent::Kind::begin, .name = name, .activity = std::move(activity)});
  }
  void end(const std::string& name, std::string dtype = {}, std::string shape = {}) {
    record({.kind = TraceEvent::Kind::end, .name = name, .dtype = std::move(dtype), .shape = std::move(shape)});
  }
  void mark_rank(const std::string& name, int rank) {
    record({.kind = TraceEvent::Kind::rank, .name = name, .activity = std::to_string(rank)});
  }
  void mark_round() { record({.kind = TraceEvent::Kind::round}); }

 private:
  // Events beyond this are dropped, with a warning: the disk is too slow.
  static constexpr std::size_t kMaxEvents = 1 << 20;

  class TraceFile;

  void record(TraceEvent event);
  void write(TraceFile& file);  // until stop()
  bool write_pending(TraceFile& file);

  const Log& log_;
  Mutex control_mutex_;  // held by start() and stop()
  std::string path_ GUARDED_BY(control_mutex_);
  std::thread writer_ GUARDED_BY(control_mutex_);

  std::atomic<bool> active_{false};
  std::atomic<bool> marks_rounds_{false};
  std::atomic<bool> stopping_{false};
  Signal news_;  // wakes the writer
  Mutex events_mutex_ ACQUIRED_AFTER(control_mutex_);
  std::vector<TraceEvent> events_ GUARDED_BY(events_mutex_);
  std::size_t lost_ GUARDED_BY(events_mutex_) = 0;
};

}  // namespace hvd
