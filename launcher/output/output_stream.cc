#include "launcher/output/output_stream.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "core/base/error.h"

namespace hvd::launcher {
namespace {

constexpr Duration kPromptDelay = 100ms;
constexpr Duration kBarDelay = 100ms;
constexpr Duration kBarInterval = 10s;  // without a terminal, where each state takes a line

}  // namespace

std::filesystem::path output_path(const std::filesystem::path& directory, int rank, int size,
                                  const std::string& stream) {
  const std::string number = std::to_string(rank);
  const std::size_t width = std::to_string(size - 1).size();
  return directory / ("rank." + std::string(width - number.size(), '0') + number) / stream;
}

OutputFile open_output_file(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::create_directories(path.parent_path(), error);
  if (error) throw InvalidArgument("cannot create " + path.parent_path().string() + ": " + error.message());
  FileDescriptor fd(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
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

void OutputStream::write_file(std::string_view bytes) {
  if (!options_.file) return;
  while (!bytes.empty()) {
    const ssize_t count = write(options_.file->fd.get(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      options_.complain("writing " + options_.file->path + ": " + error_text(errno) +
                        "; the job goes on, this file ends here");
      options_.file.reset();
      return;
    }
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
}

std::optional<Deadline> OutputStream::next_deadline() const {
  return show_partial_at_ ? show_partial_at_ : show_bar_at_;  // never both are set
}

void OutputStream::show_partial(TimePoint now) {
  if (show_partial_at_ && now >= *show_partial_at_) flush();
  if (show_bar_at_ && now >= *show_bar_at_) show_bar();
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

void OutputStream::close() {
  if (closed_) return;
  closed_ = true;
  flush();
}

}  // namespace hvd::launcher
