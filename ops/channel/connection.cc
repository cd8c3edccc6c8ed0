#include "ops/channel/connection.h"

#include <sys/socket.h>

#include <algorithm>
#include <cstring>

namespace hvd {

namespace {

constexpr std::size_t kBuffersPerCall = 64;

// Appends the part of `bytes` behind the first `skip`, and decrements `skip`.
void add_rest(std::span<const std::byte> bytes, std::size_t& skip, std::span<std::span<const std::byte>> buffers,
              std::size_t& count) {
  const std::size_t skipped = std::min(skip, bytes.size());
  skip -= skipped;
  if (skipped < bytes.size()) buffers[count++] = bytes.subspan(skipped);
}

}  // namespace

void Connection::push(const MessageFrame& frame) {
  output_.push_back({.header = to_bytes(frame), .payload = {}, .send = std::nullopt});
}

void Connection::push(const MessageFrame& frame, Transfer send) {
  const std::span<const std::byte> payload = send.message.memory;
  output_.push_back({.header = to_bytes(frame), .payload = payload, .send = std::move(send)});
}

bool Connection::flush() {
  while (!output_.empty()) {
    std::array<std::span<const std::byte>, kBuffersPerCall> buffers;
    std::size_t count = 0;
    std::size_t skip = front_sent_;
    for (const Outgoing& next : output_) {
      if (count + 2 > buffers.size()) break;
      add_rest(next.header, skip, buffers, count);
      add_rest(next.payload, skip, buffers, count);
    }
    const auto sent = socket_.send_some(std::span<const std::span<const std::byte>>(buffers.data(), count));
    if (!sent) return false;
    if (*sent == 0) return true;
    front_sent_ += *sent;
    while (!output_.empty() && front_sent_ >= output_.front().size()) {
      front_sent_ -= output_.front().size();
      if (output_.front().send) complete(*output_.front().send, Status());
      output_.pop_front();
    }
  }
  return true;
}

void Connection::finish_output() { shutdown(fd(), SHUT_WR); }

std::vector<Transfer> Connection::give_up_output() {
  std::vector<Transfer> sends;
  for (Outgoing& next : output_) {
    if (next.send) sends.push_back(std::move(*next.send));
  }
  output_.clear();
  front_sent_ = 0;
  return sends;
}

std::optional<std::size_t> Connection::fill() {
  if (begin_ > 0) std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
  end_ -= begin_;
  begin_ = 0;
  const auto count = socket_.receive_some(std::span(buffer_).subspan(end_));
  end_ += count.value_or(0);
  return count;
}

}  // namespace hvd
