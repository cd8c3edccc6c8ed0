#include "launcher/output/output_stream.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include "core/base/error.h"
#include "core/base/text.h"

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
  if (line.size() <= OutputTail::kMaxLineBytes) return std::string(line);
  std::size_t end = OutputTail::kMaxLineBytes;
  while (end > 0 && continues_character(line[end])) --end;
  return std::string(line.substr(0, end)) + " ...";
}

// From the colour cube (16 to 231), which is the same on all terminals; users customize the first sixteen colours.
// Ordered so that neighbours differ most: blue, brown, green, pink, teal, red, violet, olive.
constexpr std::array<int, 8> kPalette{27, 130, 28, 162, 30, 160, 129, 100};

constexpr Duration kPromptDelay = 100ms;
constexpr Duration kBarDelay = 100ms;
constexpr Duration kBarInterval = 10s;  // without a terminal, where each state takes a line

}  // namespace

LineSplitter::LineSplitter(Tag tag) : tag_(std::move(tag)) {}

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

void LineSplitter::end(std::string& out) {
  flush(out);
  if (tag_ && line_is_open_) emit("\n", out);
}

bool LineSplitter::has_partial() const { return !partial_.empty() && !is_overwritten(); }

bool LineSplitter::is_overwritten() const { return partial_.find('\r') != std::string::npos; }

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

bool allows_colours(std::string_view terminal, std::string_view no_color) {
  return no_color.empty() && !terminal.empty() && terminal != "dumb";
}

int colour_of_rank(int rank) { return kPalette[static_cast<std::size_t>(rank) % kPalette.size()]; }

const char* stream_name(Stream stream) { return stream == Stream::output ? "stdout" : "stderr"; }

std::string output_tag(int rank, Stream stream, bool coloured, const std::string& kind) {
  std::string tag = "[" + kind + std::to_string(rank) + "]<" + stream_name(stream) + ">:";
  if (!coloured) return tag;
  return "\x1b[38;5;" + std::to_string(colour_of_rank(rank)) + "m" + tag + "\x1b[39m";
}

std::filesystem::path output_path(const std::filesystem::path& directory, int rank, int size, const std::string& stream,
                                  const std::string& kind) {
  const std::string number = std::to_string(rank);
  const std::size_t width = std::max(std::to_string(size - 1).size(), number.size());  // elastic: may be >= size
  return directory / (kind + "." + std::string(width - number.size(), '0') + number) / stream;
}

OutputFile open_output_file(const std::filesystem::path& path, bool more) {
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  if (error) throw InvalidArgument("cannot create " + path.parent_path().string() + ": " + error.message());
  FileDescriptor fd(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | (more ? 0 : O_TRUNC), 0666));
  if (!fd) throw InvalidArgument("cannot write " + path.string() + ": " + error_text(errno));
  return {.fd = std::move(fd), .path = path.string()};
}

OutputStream::OutputStream(OutputSink& sink, Options options)
    : sink_(sink), options_(std::move(options)), splitter_(options_.tag) {}

void OutputStream::feed(std::string_view bytes) {
  write_file(bytes);
  tail_.feed(bytes);
  if (!options_.whole_lines && !options_.tag) return show(std::string(bytes));
  std::string lines;
  splitter_.feed(bytes, lines);
  if (!options_.whole_lines && splitter_.has_partial()) splitter_.flush(lines);
  if (!lines.empty()) hide_bar();  // the bar's line is complete
  show(lines);
  show_partial_at_.reset();
  if (splitter_.has_partial() && sink_.is_terminal()) show_partial_at_ = deadline_after(kPromptDelay);
  if (!splitter_.is_overwritten() || !options_.shown) {
    show_bar_at_.reset();
  } else if (!show_bar_at_) {
    show_bar_at_ = std::max(deadline_after(kBarDelay), no_bar_before_);
  }
}

void OutputStream::close() {
  if (closed_) return;
  closed_ = true;
  flush();
  std::string line_end;
  splitter_.end(line_end);
  show(line_end);
  options_.file.reset();
}

bool OutputStream::closed() const { return closed_; }

const OutputTail& OutputStream::tail() const { return tail_; }

std::optional<Deadline> OutputStream::next_deadline() const {
  return show_partial_at_ ? show_partial_at_ : show_bar_at_;  // never both are set
}

void OutputStream::show_partial(TimePoint now) {
  if (show_partial_at_ && now >= *show_partial_at_) flush();
  if (show_bar_at_ && now >= *show_bar_at_) show_bar();
}

void OutputStream::write_file(std::string_view bytes) {
  if (!options_.file) return;
  while (!bytes.empty()) {
    const ssize_t count = write(options_.file->fd.get(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      options_.warn("writing " + options_.file->path + ": " + error_text(errno) +
                    "; the job goes on, this file ends here");
      options_.file.reset();
      return;
    }
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
}

void OutputStream::flush() {
  show_partial_at_.reset();
  show_bar_at_.reset();
  hide_bar();
  std::string rest;
  splitter_.flush(rest);
  show(rest);
}

void OutputStream::show(const std::string& lines) {
  if (lines.empty() || !options_.shown) return;
  sink_.append(options_.hold_back ? options_.hold_back(lines) : lines);
}

void OutputStream::show_bar() {
  if (!sink_.draws_bars()) {
    no_bar_before_ = deadline_after(kBarInterval);
    return flush();
  }
  show_bar_at_.reset();
  std::string bar = splitter_.last_state();
  bar_is_shown_ = !bar.empty();
  sink_.set_bar(options_.place, std::move(bar));
}

void OutputStream::hide_bar() {
  if (bar_is_shown_) sink_.set_bar(options_.place, "");
  bar_is_shown_ = false;
}

}  // namespace hvd::launcher
