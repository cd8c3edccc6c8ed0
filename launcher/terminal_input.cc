#include "launcher/terminal_input.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>

namespace hvd::launcher {
namespace {

bool has_input(int terminal) {
  pollfd entry{.fd = terminal, .events = POLLIN, .revents = 0};
  return poll(&entry, 1, 0) == 1;
}

}  // namespace

TerminalInput::TerminalInput(EventLoop& loop, int terminal, FileDescriptor pipe)
    : loop_(loop), terminal_(terminal), pipe_(std::move(pipe)) {
  fcntl(pipe_.get(), F_SETFL, O_NONBLOCK);
  // Edge-triggered: lines that are typed for somebody else are reported once each and then left alone.
  loop_.watch(terminal_, EPOLLIN | EPOLLET, [this] { read_lines(); });
}

TerminalInput::~TerminalInput() { close(); }

void TerminalInput::read_lines() {
  // While rank 0 has not taken the last lines, further ones wait in the terminal.
  while (pipe_ && !at_end_ && waiting_.empty() && tcgetpgrp(terminal_) == getpgrp() && has_input(terminal_)) {
    char bytes[4096];
    const ssize_t count = read(terminal_, bytes, sizeof bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      at_end_ = true;
    } else {
      waiting_.assign(bytes, static_cast<std::size_t>(count));
      loop_.watch(pipe_.get(), EPOLLOUT, [this] { write_waiting(); });
    }
  }
  if (at_end_ && waiting_.empty()) close();
}

void TerminalInput::write_waiting() {
  const ssize_t count = write(pipe_.get(), waiting_.data(), waiting_.size());
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count < 0) {
    close();  // rank 0 reads no more
    return;
  }
  waiting_.erase(0, static_cast<std::size_t>(count));
  if (!waiting_.empty()) return;
  loop_.forget(pipe_.get());
  read_lines();
}

void TerminalInput::close() {
  if (!pipe_) return;
  loop_.forget(terminal_);
  loop_.forget(pipe_.get());
  pipe_.reset();
}

}  // namespace hvd::launcher
