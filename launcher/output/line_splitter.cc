#include "launcher/output/line_splitter.h"

namespace hvd::launcher {
namespace {

// The text from the last \r that is followed by other characters; the whole line if there is none.
std::string_view last_state_of(std::string_view line) {
  const auto last = line.find_last_not_of('\r');
  if (last == std::string_view::npos) return line.substr(0, 1);
  const auto before = line.rfind('\r', last);
  return before == std::string_view::npos ? line : line.substr(before);
}

std::string_view without_returns(std::string_view line) {
  while (line.starts_with('\r')) line.remove_prefix(1);
  while (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

}  // namespace

void LineSplitter::feed(std::string_view bytes, std::string& out) {
  while (!bytes.empty()) {
    const auto end = bytes.find('\n');
    partial_.append(bytes.substr(0, end));
    bytes.remove_prefix(end == std::string_view::npos ? bytes.size() : end + 1);
    if (partial_.find('\r') < partial_.size() - (end != std::string_view::npos)) {
      partial_ = std::string(last_state_of(partial_));
      if (line_is_open_) emit("\n", out);  // keeps the part that is shown already
    }
    if (end == std::string_view::npos) break;
    if (partial_.starts_with('\r')) partial_ = std::string(without_returns(partial_));
    partial_ += '\n';
    emit(partial_, out);
    partial_.clear();
  }
  if (partial_.size() > kMaxPartial) flush(out);
}

void LineSplitter::flush(std::string& out) {
  if (partial_.empty()) return;
  if (!is_overwritten()) {
    emit(partial_, out);
  } else if (const std::string line = last_state(); !line.empty()) {
    out += line + "\n";
  }
  partial_.clear();
}

std::string LineSplitter::last_state() const {
  const std::string_view state = without_returns(last_state_of(partial_));
  if (state.find_first_not_of(' ') == std::string_view::npos) return "";
  return (tag_ ? tag_() : "") + std::string(state);
}

void LineSplitter::emit(std::string_view bytes, std::string& out) {
  if (!line_is_open_ && tag_) out += tag_();
  out += bytes;
  line_is_open_ = bytes.back() != '\n';
}

}  // namespace hvd::launcher
