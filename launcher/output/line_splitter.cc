#include "launcher/output/line_splitter.h"

#include <algorithm>

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

std::string visible_part(std::string_view line) {
  while (line.ends_with('\r')) line.remove_suffix(1);
  if (const auto cr = line.rfind('\r'); cr != std::string_view::npos) line.remove_prefix(cr + 1);
  std::string result(line.substr(0, OutputTail::kMaxLineBytes));
  if (line.size() > OutputTail::kMaxLineBytes) result += " ...";
  return result;
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

void OutputTail::feed(std::string_view bytes) {
  if (bytes.size() > kBytes) {
    bytes_.clear();
    bytes.remove_prefix(bytes.size() - kBytes);
    begins_inside_line_ = true;
  }
  bytes_ += bytes;
  if (bytes_.size() > 2 * kBytes) {  // rare enough to cost nothing
    bytes_.erase(0, bytes_.size() - kBytes);
    begins_inside_line_ = true;
  }
}

std::vector<std::string> OutputTail::last_lines(std::size_t count) const {
  std::string_view rest = bytes_;
  if (const auto first_end = rest.find('\n'); begins_inside_line_ && first_end != std::string_view::npos) {
    rest.remove_prefix(first_end + 1);
  }
  while (rest.ends_with('\n') || rest.ends_with('\r')) rest.remove_suffix(1);
  std::vector<std::string> result;
  while (!rest.empty() && result.size() < count) {
    const auto previous_end = rest.rfind('\n');
    const auto begin = previous_end == std::string_view::npos ? 0 : previous_end + 1;
    result.push_back(visible_part(rest.substr(begin)));
    rest = rest.substr(0, begin == 0 ? 0 : begin - 1);
  }
  std::reverse(result.begin(), result.end());
  return result;
}

}  // namespace hvd::launcher
