#include "ops/transport/tcp/receive_queue.h"

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <optional>
#include <span>

#include "core/base/error.h"

namespace hvd {

namespace {

constexpr std::size_t kMessagesPerReceive = 8;

// Appends buffers in order, without the first `skip` bytes of the whole.
class ScatterList {
 public:
  explicit ScatterList(std::size_t skip) : skip_(skip) {}

  bool has_room_for_message() const { return count_ + 2 <= buffers_.size(); }

  void append(std::span<std::byte> bytes) {
    const std::size_t skipped = std::min(skip_, bytes.size());
    skip_ -= skipped;
    if (skipped == bytes.size()) return;
    buffers_[count_++] = {.iov_base = bytes.data() + skipped, .iov_len = bytes.size() - skipped};
  }

  // Returns the number of bytes read; 0 if none are available; empty if the connection is closed or broken.
  std::optional<std::size_t> receive(int fd) {
    msghdr message{};
    message.msg_iov = buffers_.data();
    message.msg_iovlen = count_;
    for (;;) {
      const ssize_t received = recvmsg(fd, &message, MSG_DONTWAIT);
      if (received > 0) return static_cast<std::size_t>(received);
      if (received == 0) return std::nullopt;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
      if (errno != EINTR) return std::nullopt;
    }
  }

 private:
  std::array<iovec, 2 * kMessagesPerReceive> buffers_{};
  std::size_t count_ = 0;
  std::size_t skip_;
};

void check_header(const DataFrameHeader& header, const PostedMessage& expected, const std::string& peer_name) {
  if (header.magic != DataFrameHeader::kMagic) {
    throw Internal(peer_name + " sent bytes that are no message where (" +
                   describe_message(expected.tag, expected.size()) + ") was expected");
  }
  if (header.sender != static_cast<std::uint32_t>(expected.peer)) {
    throw Internal(peer_name + " says that it is rank " + std::to_string(header.sender));
  }
  if (header.tag() != expected.tag || header.length != expected.size()) {
    throw Internal(describe_mismatch(expected, peer_name, header.tag(), header.length));
  }
}

}  // namespace

bool ReceiveQueue::advance(const Socket& socket, const std::string& peer_name) {
  ScatterList places(front_received_);
  for (Incoming& message : queue_) {
    if (!places.has_room_for_message()) break;
    places.append(std::as_writable_bytes(std::span(&message.header, 1)));
    places.append(message.operation->incoming);
  }
  const auto received = places.receive(socket.fd());
  if (received) consume(*received, peer_name);
  return received.has_value();
}

void ReceiveQueue::consume(std::size_t bytes, const std::string& peer_name) {
  moved_ += bytes;
  while (bytes > 0) {
    const Incoming& message = queue_.front();
    const std::size_t before = front_received_;
    const std::size_t taken = std::min(bytes, message.size() - before);
    bytes -= taken;
    front_received_ += taken;
    if (before < sizeof message.header && front_received_ >= sizeof message.header) {
      check_header(message.header, *message.operation, peer_name);
    }
    if (front_received_ < message.size()) return;
    message.operation->done = true;
    front_received_ = 0;
    queue_.pop_front();
  }
}

}  // namespace hvd
