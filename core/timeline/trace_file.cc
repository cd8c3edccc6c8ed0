#include "core/timeline/trace_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <string_view>

#include "core/base/error.h"
#include "core/base/error_text.h"

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

}  // namespace

TraceFile::TraceFile(const std::string& path)
    : path_(path), file_(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)) {
  if (file_ < 0) throw InvalidArgument("cannot write the timeline " + path_ + ": " + error_text(errno));
  const auto since_epoch =
      std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch());
  const std::string start = "\"start_time_since_epoch_in_micros\":" + std::to_string(since_epoch.count());
  try {
    append("[\n" + metadata("process_name", 0, start));
  } catch (...) {
    close(file_);
    throw;
  }
}

TraceFile::~TraceFile() { close(file_); }

void TraceFile::write(std::span<const TraceEvent> events) {
  std::string text;
  for (const TraceEvent& event : events) text += text_of(event);
  append(text);
}

// Writes the closing bracket with the text, in one call, over the previous bracket.
void TraceFile::append(const std::string& text) {
  const std::string closed = text + std::string(kClosing);
  const ssize_t count = pwrite(file_, closed.data(), closed.size(), end_);
  if (count == static_cast<ssize_t>(closed.size())) {
    end_ += static_cast<std::int64_t>(text.size());
    return;
  }
  const std::string reason = count < 0 ? error_text(errno) : "there is no room left";
  // Restore the previous content: it fits.
  constexpr auto kBytes = static_cast<ssize_t>(kClosing.size());
  if (end_ > 0 && pwrite(file_, kClosing.data(), kClosing.size(), end_) == kBytes) {
    static_cast<void>(ftruncate(file_, end_ + kBytes));
  }
  throw InvalidArgument("cannot write the timeline " + path_ + ": " + reason);
}

int TraceFile::row_of(const std::string& name, std::string& introduction) {
  const auto [found, is_new] = rows_.emplace(name, static_cast<int>(rows_.size()) + 1);
  if (is_new) {
    const std::string row = std::to_string(found->second);
    introduction = ",\n" + metadata("process_name", found->second, "\"name\":" + quoted(name)) + ",\n" +
                   metadata("process_sort_index", found->second, "\"sort_index\":" + row);
  }
  return found->second;
}

std::string TraceFile::text_of(const TraceEvent& event) {
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

}  // namespace hvd
