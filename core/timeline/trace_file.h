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
  std::string name{};      // of the tensor: its row
  std::string activity{};  // begin: what begins; rank: its number
  std::string dtype{};     // end: of the operation, if it is its end
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

  // Throws InvalidArgument if there is no room; what was written before is complete.
  void write(std::span<const TraceEvent> events);

 private:
  void append(const std::string& text);
  std::string text_of(const TraceEvent& event);
  // The row of a name, with what introduces it if it is new.
  int row_of(const std::string& name, std::string& introduction);

  const std::string path_;
  int file_ = -1;
  std::int64_t end_ = 0;  // where the closing bracket stands
  const TimePoint origin_ = Clock::now();
  std::unordered_map<std::string, int> rows_;
};

}  // namespace hvd
