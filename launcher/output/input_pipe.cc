#include "launcher/output/input_pipe.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

namespace hvd::launcher {

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

}  // namespace hvd::launcher
