// A file of trace events that is complete JSON after each write. One thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>

#include "core/base/clock.h"

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

class TraceFile {
 public:
  // Throws InvalidArgument that says why the file cannot be written.
  explicit TraceFile(const std::string& path);
  ~TraceFile();
  TraceFile(const TraceFile&) = delete;
  TraceFile& operator=(const TraceFile&) = delete;

  // Throws InvalidArgument if the disk is full; what was written before is complete.
  void write(std::span<const TraceEvent> events);

 private:
  void append(const std::string& text);
  std::string text_of(const TraceEvent& event);
  // The row of a name; `introduction` receives its metadata event if it is new.
  int row_of(const std::string& name, std::string& introduction);

  const std::string path_;
  int file_ = -1;
  std::int64_t end_ = 0;  // the offset of the closing bracket
  const TimePoint origin_ = Clock::now();
  std::unordered_map<std::string, int> rows_;
};

}  // namespace hvd
