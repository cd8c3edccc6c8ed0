#include "launcher/output_forwarder.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <vector>

namespace hvd::launcher {
namespace {

constexpr Duration kPromptDelay = 100ms;
constexpr std::size_t kReadBytes = 64 * 1024;

}  // namespace

OutputForwarder::OutputForwarder(EventLoop& loop, FileDescriptor pipe, OutputSink& sink, Options options)
    : loop_(loop), pipe_(std::move(pipe)), sink_(sink), options_(std::move(options)), splitter_(options_.tag) {
  fcntl(pipe_.get(), F_SETFL, O_NONBLOCK);  // this end is ours alone
  loop_.watch(pipe_.get(), EPOLLIN, [this] { on_readable(); });
}

OutputForwarder::~OutputForwarder() {
  if (pipe_) loop_.forget(pipe_.get());
}

void OutputForwarder::on_readable() {
  // One piece at a time, so that no rank keeps the others waiting; at the end, all there is.
  do {
    if (sink_.congested()) {  // forgotten altogether, since epoll would keep reporting a pipe whose writer has ended
      loop_.forget(pipe_.get());
      paused_ = true;
      return;
    }
    read_some();
  } while (closing_ && pipe_);
}

void OutputForwarder::read_some() {
  char bytes[kReadBytes];
  const ssize_t count = read(pipe_.get(), bytes, sizeof bytes);
  if (count > 0) {
    forward({bytes, static_cast<std::size_t>(count)});
  } else if (count == 0 || (errno == EAGAIN && closing_) || (errno != EAGAIN && errno != EINTR)) {
    close();
  }
}

void OutputForwarder::forward(std::string_view bytes) {
  write_file(bytes);
  tail_.feed(bytes);
  std::string lines;
  splitter_.feed(bytes, lines);
  if (!options_.whole_lines) splitter_.flush(lines);
  if (!lines.empty()) sink_.append(lines);
  show_partial_at_.reset();
  if (splitter_.has_partial() && sink_.is_terminal()) show_partial_at_ = deadline_after(kPromptDelay);
}

void OutputForwarder::write_file(std::string_view bytes) {
  if (!options_.file) return;
  while (!bytes.empty()) {
    const ssize_t count = write(options_.file->fd.get(), bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      options_.complain("writing " + options_.file->path + ": " + std::generic_category().message(errno) +
                        "; the job goes on, this file ends here");
      options_.file.reset();
      return;
    }
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
}

void OutputForwarder::show_partial(TimePoint now) {
  if (!show_partial_at_ || now < *show_partial_at_) return;
  show_partial_at_.reset();
  std::string line;
  splitter_.flush(line);
  sink_.append(line);
}

void OutputForwarder::resume() {
  if (!paused_) return;
  paused_ = false;
  loop_.watch(pipe_.get(), EPOLLIN, [this] { on_readable(); });
  if (closing_) on_readable();
}

void OutputForwarder::close_when_empty() {
  if (closing_ || !pipe_) return;
  closing_ = true;
  if (!paused_) on_readable();
}

void OutputForwarder::close() {
  if (closed()) return;
  loop_.forget(pipe_.get());
  pipe_.reset();
  paused_ = false;
  std::string rest;
  splitter_.flush(rest);
  if (!rest.empty()) sink_.append(rest);
  show_partial_at_.reset();
}

}  // namespace hvd::launcher
