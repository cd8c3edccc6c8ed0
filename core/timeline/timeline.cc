#include "core/timeline/timeline.h"

#include <fcntl.h>
#include <unistd.h>

#include <cctype>
#include <cerrno>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>
#include <unordered_map>

#include "core/base/error.h"
#include "core/base/process.h"
#include "core/net/socket.h"

namespace hvd {

namespace {

constexpr std::string_view kClosing = "\n]\n";

// Names come from the program and may have any bytes.
std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string metadata(const char* what, int row, const std::string& arguments) {
  return std::string("{\"name\":\"") + what + "\",\"ph\":\"M\",\"pid\":" + std::to_string(row) + ",\"args\":{" +
         arguments + "}}";
}

std::int64_t microseconds(Clock::duration time) {
  return std::chrono::duration_cast<std::chrono::microseconds>(time).count();
}

std::string in_capitals(std::string name) {
  for (char& letter : name) letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  return name;
}

}  // namespace

std::string operation_activity(const OperationSpec& spec) {
  if (spec.collective == Collective::allreduce && spec.op == ReduceOp::adasum) return "ADASUM";
  return in_capitals(collective_name(spec.collective));
}

std::string negotiation_activity(const OperationSpec& spec) { return "NEGOTIATE_" + operation_activity(spec); }

std::string backend_activity(const std::string& backend, const OperationSpec& spec) {
  if (backend != "mpi" && backend != "nccl") return backend;
  const bool broadcasts = spec.collective == Collective::broadcast;
  return in_capitals(backend) + "_" + (broadcasts ? "BCAST" : operation_activity(spec));
}

// A file of trace events that is complete JSON after each write. One thread.
class Timeline::TraceFile {
 public:
  // Throws InvalidArgument that says why the file cannot be written.
  explicit TraceFile(const std::string& path)
      : path_(path), file_(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)) {
    if (!file_) throw InvalidArgument("cannot write the timeline " + path_ + ": " + error_text(errno));
    const auto since_epoch =
        std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch());
    const std::string start = "\"start_time_since_epoch_in_micros\":" + std::to_string(since_epoch.count());
    append("[\n" + metadata("process_name", 0, start));
  }

  // Throws InvalidArgument if the disk is full; what was written before is complete.
  void write(std::span<const TraceEvent> events) {
    std::string text;
    for (const TraceEvent& event : events) text += text_of(event);
    append(text);
  }

 private:
  // Writes the closing bracket with the text, in one call, over the previous bracket.
  void append(const std::string& text) {
    const std::string closed = text + std::string(kClosing);
    const ssize_t count = pwrite(file_.get(), closed.data(), closed.size(), end_);
    if (count == static_cast<ssize_t>(closed.size())) {
      end_ += static_cast<std::int64_t>(text.size());
      return;
    }
    const std::string reason = count < 0 ? error_text(errno) : "there is no room left";
    // Restore the previous content: it fits.
    constexpr auto kBytes = static_cast<ssize_t>(kClosing.size());
    if (end_ > 0 && pwrite(file_.get(), kClosing.data(), kClosing.size(), end_) == kBytes) {
      static_cast<void>(ftruncate(file_.get(), end_ + kBytes));
    }
    throw InvalidArgument("cannot write the timeline " + path_ + ": " + reason);
  }

  std::string text_of(const TraceEvent& event) {
    const std::string time = std::to_string(microseconds(event.time - origin_));
    if (event.kind == TraceEvent::Kind::round) {
      return ",\n{\"name\":\"CYCLE_START\",\"ph\":\"i\",\"s\":\"g\",\"pid\":0,\"ts\":" + time + "}";
    }
    std::string text;
    const int row = row_of(event.name, text);
    text += std::string(",\n{\"ph\":\"") + static_cast<char>(event.kind) + "\",\"pid\":" + std::to_string(row) +
            ",\"tid\":0,\"ts\":" + time;
    if (!event.activity.empty()) text += ",\"name\":" + quoted(event.activity);
    if (event.kind == TraceEvent::Kind::rank) text += ",\"dur\":0";
    if (!event.dtype.empty()) {
      text += ",\"args\":{\"dtype\":" + quoted(event.dtype) + ",\"shape\":" + quoted(event.shape) + "}";
    }
    return text + "}";
  }

  // The row of a name; `introduction` receives its metadata event if it is new.
  int row_of(const std::string& name, std::string& introduction) {
    const auto [found, is_new] = rows_.emplace(name, static_cast<int>(rows_.size()) + 1);
    if (is_new) {
      const std::string row = std::to_string(found->second);
      introduction = ",\n" + metadata("process_name", found->second, "\"name\":" + quoted(name)) + ",\n" +
                     metadata("process_sort_index", found->second, "\"sort_index\":" + row);
    }
    return found->second;
  }

  const std::string path_;
  const FileDescriptor file_;
  std::int64_t end_ = 0;  // the offset of the closing bracket
  const TimePoint origin_ = Clock::now();
  std::unordered_map<std::string, int> rows_;
};

void Timeline::start(const std::string& path, bool marks_rounds) {
  const MutexLock lock(control_mutex_);
  if (active()) {
    if (path == path_) return;
    throw InvalidArgument("the timeline is being written to " + path_ + ": stop it first");
  }
  if (writer_.joinable()) writer_.join();  // it has stopped because of an error
  auto file = std::make_shared<TraceFile>(path);
  path_ = path;
  {
    const MutexLock events_lock(events_mutex_);
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
    try {
      log_.warning(current_exception_status().message() + "; it ends here");
    } catch (...) {  // no memory for the warning either: the thread ends all the same, and not the process
    }
  }
}

void Timeline::stop() {
  const MutexLock lock(control_mutex_);
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
    const MutexLock lock(events_mutex_);
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
    const MutexLock lock(events_mutex_);
    if (events_.size() >= kMaxEvents) {
      ++lost_;
      return;
    }
    events_.push_back(std::move(event));
    if (events_.size() > 1) return;  // the writer has been woken already
  }
  news_.increment_and_wake();
}

}  // namespace hvd
