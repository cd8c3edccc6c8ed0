#include "launcher/line_splitter.h"

namespace hvd::launcher {

void LineSplitter::feed(std::string_view bytes, std::string& out) {
  while (!bytes.empty()) {
    // Without tags all complete lines go out in one piece.
    auto end = !tag_ ? bytes.find_last_of("\r\n") : bytes.find_first_of("\r\n");
    if (end == std::string_view::npos) break;
    if (bytes[end] == '\r' && end + 1 < bytes.size() && bytes[end + 1] == '\n') ++end;
    partial_.append(bytes.substr(0, end + 1));
    emit(partial_, out);
    partial_.clear();
    bytes.remove_prefix(end + 1);
  }
  partial_.append(bytes);
  if (partial_.size() > kMaxPartial) flush(out);
}

void LineSplitter::flush(std::string& out) {
  if (partial_.empty()) return;
  emit(partial_, out);
  partial_.clear();
}

void LineSplitter::emit(std::string_view bytes, std::string& out) {
  const bool belongs_to_last_line = line_is_open_ || (after_cr_ && bytes == "\n");
  if (!belongs_to_last_line && tag_) out += tag_();
  out += bytes;
  line_is_open_ = bytes.back() != '\n' && bytes.back() != '\r';
  after_cr_ = bytes.back() == '\r';
}

}  // namespace hvd::launcher
