#include "launcher/watch/python_stack.h"

#include <charconv>
#include <vector>

#include "core/flight/flight_reader.h"

namespace hvd::launcher {
namespace {

constexpr std::string_view kThread = "hread 0x";  // "Thread 0x..." and "Current thread 0x..."
constexpr std::string_view kCurrent = "Current thread";
constexpr std::string_view kFile = "  File \"", kLine = "\", line ", kIn = " in ";

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    lines.push_back(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
  }
  return lines;
}

// Parses `  File "train.py", line 48 in load_batch`.
std::optional<PythonFrame> parse_frame(std::string_view text) {
  if (!text.starts_with(kFile)) return std::nullopt;
  text.remove_prefix(kFile.size());
  const std::size_t line = text.rfind(kLine);
  if (line == std::string_view::npos) return std::nullopt;
  PythonFrame frame{.file = printable(text.substr(0, line)), .line = 0, .function = {}};
  text.remove_prefix(line + kLine.size());
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), frame.line);
  if (error != std::errc()) return std::nullopt;
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  if (text.starts_with(kIn)) frame.function = printable(text.substr(kIn.size()));
  return frame;
}

// The frames of the thread marked as current, else of the last thread, which is the oldest.
std::vector<PythonFrame> frames_of_main_thread(std::string_view stack) {
  std::vector<PythonFrame> frames;
  bool current = false;
  for (const std::string_view line : lines_of(stack)) {
    if (line.substr(0, kCurrent.size() + kThread.size()).find(kThread) != std::string_view::npos) {
      if (current) break;
      frames.clear();
      current = line.starts_with(kCurrent);
    } else if (auto frame = parse_frame(line)) {
      frames.push_back(std::move(*frame));
    }
  }
  return frames;
}

bool is_in(std::string_view file, std::string_view folder) {
  return !folder.empty() && file.size() > folder.size() && file.starts_with(folder) && file[folder.size()] == '/';
}

bool is_of_library(std::string_view file) {
  for (const std::string_view part : {"/site-packages/", "/dist-packages/", "/lib/python3", "<frozen "}) {
    if (file.find(part) != std::string_view::npos) return true;
  }
  return false;
}

}  // namespace

std::string to_string(const PythonFrame& frame) {
  const std::size_t slash = frame.file.rfind('/');
  std::string text = slash == std::string::npos ? frame.file : frame.file.substr(slash + 1);
  text += ":" + std::to_string(frame.line);
  return frame.function.empty() ? text : text + " in " + frame.function;
}

std::optional<PythonFrame> frame_of_script(std::string_view stack, std::string_view package) {
  std::optional<PythonFrame> innermost;
  for (PythonFrame& frame : frames_of_main_thread(stack)) {
    if (is_in(frame.file, package)) continue;
    if (!is_of_library(frame.file)) return std::move(frame);
    if (!innermost) innermost = std::move(frame);
  }
  return innermost;
}

}  // namespace hvd::launcher
