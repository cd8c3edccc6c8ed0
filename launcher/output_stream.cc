#include "launcher/output_stream.h"

#include <unistd.h>

#include <cerrno>

#include "core/base/error_text.h"

namespace hvd::launcher {
namespace {

constexpr Duration kPromptDelay = 100ms;

}  // namespace

OutputStream::OutputStream(OutputSink& sink, Options options)
    : sink_(sink), options_(std::move(options)), splitter_(options_.tag) {}

void OutputStream::feed(std::string_view bytes) {
  write_file(bytes);
  tail_.feed(bytes);
  std::string lines;
  splitter_.feed(bytes, lines);
  if (!options_.whole_lines) splitter_.flush(lines);
  show(lines);
  show_partial_at_.reset();
  if (splitter_.has_partial() && sink_.is_terminal()) show_partial_at_ = deadline_after(kPromptDelay);
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

void OutputStream::show_partial(TimePoint now) {
  if (show_partial_at_ && now >= *show_partial_at_) flush();
}

void OutputStream::flush() {
  show_partial_at_.reset();
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
