// What this rank's operations did when, as a file for chrome://tracing or https://ui.perfetto.dev.
//
// The file is an array of trace events (Google, "Trace Event Format"), a row for each name:
//
//   NEGOTIATE_ALLREDUCE   from the submission until all ranks are ready; in it, a mark with its number for each rank
//                         whose request has come, if it came in full
//   ALLREDUCE             then the operation, with dtype and shape at its end; in it, the backend's part
//   CYCLE_START           on request: a mark for each answer of the coordinator
//
// These names are Horovod's, for the programs that read its files.
//
// Whoever records only puts an event into a list; a thread of its own, which lives while a timeline is written, turns
// it into text. After each of its writes the file is complete JSON. What cannot be written (a full disk) ends the
// timeline with a warning, and nothing else.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/base/clock.h"
#include "core/base/futex.h"
#include "core/base/log.h"
#include "core/timeline/trace_file.h"

namespace hvd {

class Timeline {
 public:
  // `log` outlives it.
  explicit Timeline(const Log& log) : log_(log) {}
  ~Timeline() { stop(); }
  Timeline(const Timeline&) = delete;
  Timeline& operator=(const Timeline&) = delete;

  // start() and stop(): any thread. A file that is there is overwritten; if it is the one that is being written,
  // nothing happens. Throws InvalidArgument if it cannot be written, or another one is.
  void start(const std::string& path, bool marks_rounds);
  // Returns when everything is in the file. Nothing happens if no timeline is written.
  void stop();

  // To be asked before names and texts are made for the calls below, which do nothing otherwise.
  bool active() const { return active_.load(std::memory_order_relaxed); }
  bool marks_rounds() const { return active() && marks_rounds_.load(std::memory_order_relaxed); }

  // Engine thread.
  void begin(const std::string& name, std::string activity);
  void end(const std::string& name, std::string dtype = {}, std::string shape = {});
  void mark_rank(const std::string& name, int rank);
  void mark_round();

 private:
  // More is lost, and said to be: the disk does not keep up.
  static constexpr std::size_t kMostEvents = 1 << 20;

  void record(TraceEvent event);
  void write(TraceFile& file);  // until it is stopped
  bool write_pending(TraceFile& file);

  const Log& log_;
  std::mutex control_mutex_;  // of start() and stop(); comes before events_mutex_
  std::string path_;          // guarded by control_mutex_
  std::thread writer_;        // guarded by control_mutex_

  std::atomic<bool> active_{false};
  std::atomic<bool> marks_rounds_{false};
  std::atomic<bool> stopping_{false};
  Signal news_;  // for the writer
  std::mutex events_mutex_;
  std::vector<TraceEvent> events_;  // guarded by events_mutex_
  std::size_t lost_ = 0;            // guarded by events_mutex_
};

}  // namespace hvd
