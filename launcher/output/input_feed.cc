#include "launcher/output/input_feed.h"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace hvd::launcher {
namespace {

constexpr std::size_t kPiece = 64 * 1024;

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

InputFeed::InputFeed(EventLoop& loop, int input, const std::vector<int>& ranks,
                     std::function<void(int, std::string_view)> write)
    : loop_(loop),
      input_(input),
      write_(std::move(write)),
      is_terminal_(isatty(input) == 1),
      ranks_(ranks.begin(), ranks.end()) {
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

void InputFeed::read_on() {
  while (!at_end_ && busy_.empty() && !ranks_.empty() && has_input(input_) &&
         (!is_terminal_ || tcgetpgrp(input_) == getpgrp())) {
    read_piece();
  }
}

void InputFeed::read_piece() {
  char bytes[kPiece];
  const ssize_t count = read(input_, bytes, sizeof bytes);
  if (count < 0 && (errno == EINTR || errno == EAGAIN)) return;
  at_end_ = count <= 0;
  const std::set<int> ranks = ranks_;
  if (!at_end_) busy_ = ranks;
  for (const int rank : ranks) write_(rank, {bytes, at_end_ ? 0 : static_cast<std::size_t>(count)});
}

void InputFeed::taken(int rank) {
  busy_.erase(rank);
  read_on();
}

void InputFeed::forget(int rank) {
  ranks_.erase(rank);
  taken(rank);
}

}  // namespace hvd::launcher
