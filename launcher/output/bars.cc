#include "launcher/output/bars.h"

#include <algorithm>
#include <string_view>
#include <vector>

namespace hvd::launcher {
namespace {

// The escape sequence at the beginning of a text; empty if there is none or it is incomplete.
std::string_view escape_sequence(std::string_view text) {
  if (!text.starts_with("\x1b[")) return {};
  for (std::size_t i = 2; i < text.size(); ++i) {
    if (text[i] >= '@' && text[i] <= '~') return text.substr(0, i + 1);
  }
  return {};
}

bool continues_character(char byte) { return (static_cast<unsigned char>(byte) & 0xc0) == 0x80; }

// Cuts the text to one line: keeps colours, drops other control sequences. Assumes that a character is one column wide.
std::string fitted(std::string_view text, std::size_t columns) {
  std::string result;
  std::size_t width = 0;
  while (!text.empty()) {
    const std::string_view escape = escape_sequence(text);
    if (!escape.empty()) {
      if (escape.ends_with('m')) result += escape;
      text.remove_prefix(escape.size());
      continue;
    }
    const char byte = text.front();
    text.remove_prefix(1);
    if (static_cast<unsigned char>(byte) < ' ' || byte == '\x7f') continue;
    if (!continues_character(byte)) ++width;
    if (width <= columns) result += byte;
  }
  return result;
}

}  // namespace

void Bars::set(int place, std::string text) {
  if (text.empty()) {
    bars_.erase(place);
  } else {
    bars_[place] = std::move(text);
  }
}

std::string Bars::erase() {
  if (drawn_ == 0) return "";
  std::string result = "\r";
  if (drawn_ > 1) result += "\x1b[" + std::to_string(drawn_ - 1) + "A";
  drawn_ = 0;
  return result + "\x1b[J";
}

std::string Bars::draw(Terminal terminal) {
  const std::size_t room = std::max<std::size_t>(terminal.rows, 2) - 1;
  const std::size_t shown = bars_.size() <= room ? bars_.size() : room - 1;
  std::vector<std::string> lines;
  for (const auto& [place, text] : bars_) {
    if (lines.size() < shown) lines.push_back(text);
  }
  if (shown < bars_.size()) lines.push_back("and " + std::to_string(bars_.size() - shown) + " more");
  std::string result;
  for (const std::string& line : lines) {
    if (!result.empty()) result += "\n";
    result += fitted(line, std::max<std::size_t>(terminal.columns, 2) - 1);  // some terminals wrap in the last column
  }
  drawn_ = lines.size();
  return result;
}

}  // namespace hvd::launcher
