#include "launcher/output/rank_pipes.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace hvd::launcher {
namespace {

constexpr std::size_t kReadBytes = 64 * 1024;

bool has_input(int fd) {
  pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
  return poll(&entry, 1, 0) == 1;
}

// epoll does not support regular files or /dev/null.
bool can_be_watched(int fd) {
  struct stat info {};
  return isatty(fd) == 1 || (fstat(fd, &info) == 0 && (S_ISFIFO(info.st_mode) || S_ISSOCK(info.st_mode)));
}

}  // namespace

InputPipe::InputPipe(EventLoop& loop, FileDescriptor pipe, std::function<void()> taken)
    : loop_(loop), pipe_(std::move(pipe)), taken_(std::move(taken)) {
  fcntl(pipe_.get(), F_SETFL, O_NONBLOCK);
}

InputPipe::~InputPipe() { close(); }

void InputPipe::write(std::string_view bytes) {
  if (bytes.empty()) return close();
  if (!pipe_) return taken_();
  const bool is_watched = !waiting_.empty();
  waiting_ += bytes;
  if (!is_watched) loop_.watch(pipe_.get(), EPOLLOUT, [this] { write_waiting(); });
}

void InputPipe::write_waiting() {
  const ssize_t count = ::write(pipe_.get(), waiting_.data(), waiting_.size());
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (count < 0) {
    close();  // the rank no longer reads
    return taken_();
  }
  waiting_.erase(0, static_cast<std::size_t>(count));
  if (!waiting_.empty()) return;
  loop_.forget(pipe_.get());
  taken_();
}

void InputPipe::close() {
  if (!pipe_) return;
  loop_.forget(pipe_.get());
  pipe_.reset();
  waiting_.clear();
}

OutputPipe::OutputPipe(EventLoop& loop, FileDescriptor pipe, std::function<void(std::string_view)> wrote)
    : loop_(loop), pipe_(std::move(pipe)), wrote_(std::move(wrote)) {
  fcntl(pipe_.get(), F_SETFL, O_NONBLOCK);  // does not affect the rank: this end is not shared
  hold(false);
}

OutputPipe::~OutputPipe() {
  if (pipe_) loop_.forget(pipe_.get());
}

bool OutputPipe::closed() const { return !pipe_; }

void OutputPipe::hold(bool on) {
  held_ = on;
  if (!pipe_ || on || watched_) return;
  loop_.watch(pipe_.get(), EPOLLIN, [this] { on_readable(); });
  watched_ = true;
  if (closing_) on_readable();
}

void OutputPipe::close_when_empty() {
  if (closing_ || !pipe_) return;
  closing_ = true;
  if (!held_) on_readable();
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

void OutputPipe::close() {
  loop_.forget(pipe_.get());
  pipe_.reset();
  wrote_({});
}

InputFeed::InputFeed(EventLoop& loop, int input, const std::vector<int>& ranks,
                     std::function<void(int, std::string_view)> write)
    : loop_(loop),
      input_(input),
      write_(std::move(write)),
      is_terminal_(isatty(input) == 1),
      ranks_(ranks.begin(), ranks.end()),
      next_(loop, [this] { read_on(); }) {
  // Edge-triggered: input that is meant for another process is reported once and then left alone.
  if (can_be_watched(input_)) {
    loop_.watch(input_, EPOLLIN | EPOLLET, [this] { read_on(); });
    is_watched_ = true;
  }
  read_on();
}

InputFeed::~InputFeed() {
  if (is_watched_) loop_.forget(input_);
}

void InputFeed::taken(int rank) {
  busy_.erase(rank);
  if (busy_.empty()) next_.set(Clock::now());  // later: write_() itself calls this if the rank has closed its input
}

void InputFeed::forget(int rank) {
  ranks_.erase(rank);
  taken(rank);
}

void InputFeed::read_on() {
  const bool may_read = !is_terminal_ || tcgetpgrp(input_) == getpgrp();
  if (may_read && !at_end_ && busy_.empty() && !ranks_.empty() && has_input(input_)) read_piece();
}

void InputFeed::read_piece() {
  char bytes[kReadBytes];
  const ssize_t count = read(input_, bytes, sizeof bytes);
  if (count < 0 && errno == EAGAIN) return;
  if (count < 0 && errno == EINTR) return next_.set(Clock::now());
  at_end_ = count <= 0;
  const std::set<int> ranks = ranks_;
  if (!at_end_) busy_ = ranks;
  for (const int rank : ranks) write_(rank, {bytes, at_end_ ? 0 : static_cast<std::size_t>(count)});
}

}  // namespace hvd::launcher
