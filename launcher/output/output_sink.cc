#include "launcher/output/output_sink.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/text.h"

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

bool moves_cursor() {
  const char* const terminal = std::getenv("TERM");
  return terminal != nullptr && *terminal != '\0' && std::string_view(terminal) != "dumb";
}

Bars::Terminal size_of_terminal(int fd) {
  winsize size{};
  if (ioctl(fd, TIOCGWINSZ, &size) != 0 || size.ws_col == 0 || size.ws_row == 0) return {.columns = 80, .rows = 24};
  return {.columns = size.ws_col, .rows = size.ws_row};
}

}  // namespace

void Bars::set(int place, std::string text) {
  if (text.empty()) {
    bars_.erase(place);
  } else {
    bars_[place] = std::move(text);
  }
}

bool Bars::empty() const { return bars_.empty(); }

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

OutputSink::OutputSink(EventLoop& loop, int fd, Callbacks callbacks)
    : loop_(loop), fd_(fd), callbacks_(std::move(callbacks)), is_terminal_(isatty(fd) == 1) {
  draws_bars_ = is_terminal_ && moves_cursor();
  struct stat info {};
  if (fstat(fd, &info) != 0) return;
  is_socket_ = S_ISSOCK(info.st_mode);
  if (S_ISFIFO(info.st_mode) || is_terminal_) {
    const std::string path = "/proc/self/fd/" + std::to_string(fd);
    twin_.reset(open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  }
  is_pipe_ = S_ISFIFO(info.st_mode);
  watch_reader();
}

OutputSink::~OutputSink() { loop_.forget(target()); }

void OutputSink::append(std::string_view bytes) {
  if (bytes.empty()) return;
  put(bars_.erase());
  put(bytes);
  begins_line_ = bytes.back() == '\n';
  draw_bars();
}

void OutputSink::append_lines(std::string_view bytes) {
  if (!begins_line_ && !bytes.empty()) append("\n");
  append(bytes);
}

void OutputSink::set_bar(int place, std::string text) {
  bars_.set(place, std::move(text));
  put(bars_.erase());
  draw_bars();
}

bool OutputSink::congested() const { return waiting_.size() - written_ > kCongested; }

bool OutputSink::empty() const { return waiting_.empty(); }

bool OutputSink::is_terminal() const { return is_terminal_; }

bool OutputSink::draws_bars() const { return draws_bars_; }

// For a reader that leaves while there is nothing to write: without this, a job that prints nothing would outlive a
// caller that was killed.
void OutputSink::watch_reader() {
  if (is_pipe_) loop_.watch(target(), 0, [this] { fail(EPIPE); });  // epoll reports EPOLLERR in any case
}

// Draws no bars behind a prompt, or while output is waiting; write_waiting() draws them then.
void OutputSink::draw_bars() {
  if (begins_line_ && empty() && !bars_.empty()) put(bars_.draw(size_of_terminal(fd_)));
}

int OutputSink::target() const { return twin_ ? twin_.get() : fd_; }

void OutputSink::put(std::string_view bytes) {
  if (broken_ || bytes.empty()) return;
  if (!empty()) {
    waiting_ += bytes;
    return;
  }
  const std::size_t accepted = write_some(bytes);
  if (accepted == bytes.size()) return;
  waiting_ = bytes.substr(accepted);
  loop_.forget(target());
  loop_.watch(target(), EPOLLOUT, [this] { write_waiting(); });
}

void OutputSink::write_waiting() {
  const bool was_congested = congested();
  written_ += write_some(std::string_view(waiting_).substr(written_));
  if (broken_ || written_ == waiting_.size()) {
    loop_.forget(target());
    waiting_.clear();
    written_ = 0;
    if (!broken_) watch_reader();
    draw_bars();
  } else if (written_ > waiting_.size() / 2) {
    waiting_.erase(0, written_);
    written_ = 0;
  }
  if (was_congested && !congested()) callbacks_.relieved();
}

std::size_t OutputSink::write_some(std::string_view bytes) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = is_socket_ ? send(fd_, bytes.data() + done, bytes.size() - done, MSG_DONTWAIT)
                                     : write(target(), bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return done;
    if (count < 0) {
      fail(errno);
      return bytes.size();
    }
    done += static_cast<std::size_t>(count);
  }
  return done;
}

void OutputSink::fail(int error) {
  broken_ = true;
  loop_.forget(target());
  if (error == EPIPE || error == ECONNRESET || (error == EIO && is_terminal_)) {  // EIO: the terminal is gone
    callbacks_.reader_left();
  } else {
    callbacks_.failure(error_text(error));
  }
}

bool is_same_file(int fd_a, int fd_b) {
  struct stat a {
  }, b{};
  return fstat(fd_a, &a) == 0 && fstat(fd_b, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

}  // namespace hvd::launcher
