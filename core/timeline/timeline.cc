#include "core/timeline/timeline.h"

#include <memory>
#include <utility>

#include "core/base/error.h"
#include "core/base/thread.h"

namespace hvd {

void Timeline::start(const std::string& path, bool marks_rounds) {
  std::lock_guard lock(control_mutex_);
  if (active()) {
    if (path == path_) return;
    throw InvalidArgument("the timeline is being written to " + path_ + ": stop it first");
  }
  if (writer_.joinable()) writer_.join();  // it has stopped because of an error
  auto file = std::make_shared<TraceFile>(path);
  path_ = path;
  {
    std::lock_guard events_lock(events_mutex_);
    events_.clear();
    lost_ = 0;
  }
  stopping_.store(false, std::memory_order_relaxed);
  marks_rounds_.store(marks_rounds, std::memory_order_relaxed);
  active_.store(true, std::memory_order_release);
  try {
    writer_ = start_thread("hvd-timeline", [this, file = std::move(file)] { write(*file); });
  } catch (...) {
    active_.store(false, std::memory_order_release);
    throw;
  }
}

void Timeline::write(TraceFile& file) {
  try {
    while (write_pending(file)) {
    }
  } catch (...) {  // the disk is full, or memory is exhausted
    active_.store(false, std::memory_order_release);
    log_.warning(current_exception_status().message() + "; it ends here");
  }
}

void Timeline::stop() {
  std::lock_guard lock(control_mutex_);
  if (!writer_.joinable()) return;
  active_.store(false, std::memory_order_release);
  stopping_.store(true, std::memory_order_release);
  news_.increment_and_wake();
  writer_.join();
}

// One iteration of the writer; false after the last one.
bool Timeline::write_pending(TraceFile& file) {
  const std::uint32_t heard = news_.value.load(std::memory_order_acquire);
  const bool last = stopping_.load(std::memory_order_acquire);
  std::vector<TraceEvent> events;
  std::size_t lost = 0;
  {
    std::lock_guard lock(events_mutex_);
    events = std::exchange(events_, {});
    lost = std::exchange(lost_, 0);
  }
  if (lost > 0) log_.warning("the timeline lacks " + std::to_string(lost) + " events: the disk is too slow for them");
  if (!events.empty()) {
    file.write(events);
  } else if (!last) {
    news_.wait_change(heard, Deadline::max(), nullptr);
  }
  return !last || !events.empty();
}

void Timeline::record(TraceEvent event) {
  if (!active()) return;
  {
    std::lock_guard lock(events_mutex_);
    if (events_.size() >= kMostEvents) {
      ++lost_;
      return;
    }
    events_.push_back(std::move(event));
    if (events_.size() > 1) return;  // the writer has been woken already
  }
  news_.increment_and_wake();
}

void Timeline::begin(const std::string& name, std::string activity) {
  record({.kind = TraceEvent::Kind::begin, .name = name, .activity = std::move(activity)});
}

void Timeline::end(const std::string& name, std::string dtype, std::string shape) {
  record({.kind = TraceEvent::Kind::end, .name = name, .dtype = std::move(dtype), .shape = std::move(shape)});
}

void Timeline::mark_rank(const std::string& name, int rank) {
  record({.kind = TraceEvent::Kind::rank, .name = name, .activity = std::to_string(rank)});
}

void Timeline::mark_round() { record({.kind = TraceEvent::Kind::round}); }

}  // namespace hvd
