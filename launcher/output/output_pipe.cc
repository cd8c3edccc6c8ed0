#include "launcher/output/output_pipe.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace hvd::launcher {
namespace {

constexpr std::size_t kReadBytes = 64 * 1024;

}  // namespace

OutputPipe::OutputPipe(EventLoop& loop, FileDescriptor pipe, std::function<void(std::string_view)> wrote)
    : loop_(loop), pipe_(std::move(pipe)), wrote_(std::move(wrote)) {
  fcntl(pipe_.get(), F_SETFL, O_NONBLOCK);  // does not affect the rank: this end is not shared
  hold(false);
}

OutputPipe::~OutputPipe() {
  if (pipe_) loop_.forget(pipe_.get());
}

void OutputPipe::hold(bool on) {
  held_ = on;
  if (!pipe_ || on || watched_) return;
  loop_.watch(pipe_.get(), EPOLLIN, [this] { on_readable(); });
  watched_ = true;
  if (closing_) on_readable();
}

void OutputPipe::on_readable() {
  do {
    if (held_) {  // forget(): epoll would keep reporting a pipe whose writer has ended
      loop_.forget(pipe_.get());
      watched_ = false;
      return;
    }
    read_some();
  } while (closing_ && pipe_);  // when closing, until the pipe is empty
}

void OutputPipe::read_some() {
  char bytes[kReadBytes];
  const ssize_t count = read(pipe_.get(), bytes, sizeof bytes);
  if (count > 0) {
    wrote_({bytes, static_cast<std::size_t>(count)});
  } else if (count == 0 || (errno == EAGAIN && closing_) || (errno != EAGAIN && errno != EINTR)) {
    close();
  }
}

void OutputPipe::close_when_empty() {
  if (closing_ || !pipe_) return;
  closing_ = true;
  if (!held_) on_readable();
}

void OutputPipe::close() {
  loop_.forget(pipe_.get());
  pipe_.reset();
  wrote_({});
}

}  // namespace hvd::launcher
