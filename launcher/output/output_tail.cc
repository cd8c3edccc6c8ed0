#include "launcher/output/output_tail.h"

#include <algorithm>

namespace hvd::launcher {
namespace {

std::string visible_part(std::string_view line) {
  while (line.ends_with('\r')) line.remove_suffix(1);
  if (const auto cr = line.rfind('\r'); cr != std::string_view::npos) line.remove_prefix(cr + 1);
  std::string result(line.substr(0, OutputTail::kMaxLineBytes));
  if (line.size() > OutputTail::kMaxLineBytes) result += " ...";
  return result;
}

}  // namespace

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
