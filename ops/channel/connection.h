// A connection for messages between two ranks: its frames, and either end of it once it is established.
#pragma once

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/net/connection_attempt.h"
#include "core/net/socket.h"
#include "ops/channel/matcher.h"

namespace hvd {

// The frame of the message protocol between two ranks: 48 bytes, little endian. docs/wire-format.md describes the
// protocol. Pure: parses bytes into a checked frame.
struct MessageFrame {
  static constexpr std::uint32_t kMagic = 0x64766803;

  enum class Kind : std::uint32_t {
    // From the sender of messages.
    hello = 1,    // first frame: the word `length` is at `address` in the memory of process `id`, the sender
    message = 2,  // `length` bytes of payload follow
    offer = 3,    // `length` bytes are available at `address`, under the number `id`
    data = 4,     // the `length` bytes of payload of an offer that was fetched
    // From the receiver.
    credit = 5,   // `length` more bytes may be sent eagerly
    fetch = 6,    // send the offer `id`
    taken = 7,    // the offer `id` was read directly from memory
    refused = 8,  // the receive for the offer `id` has `length` bytes
  };

  std::uint32_t magic = kMagic;
  Kind kind{};
  std::uint64_t channel = 0;
  std::int64_t tag = 0;
  std::uint64_t id = 0;
  std::uint64_t length = 0;
  std::uint64_t address = 0;

  bool operator==(const MessageFrame&) const = default;
};

inline constexpr std::size_t kMessageFrameBytes = 48;
static_assert(sizeof(MessageFrame) == kMessageFrameBytes && std::is_trivially_copyable_v<MessageFrame>);
static_assert(std::endian::native == std::endian::little, "the wire format is little endian");

// Messages up to this size may be sent eagerly: before the receiver has requested them.
inline constexpr std::size_t kEagerBytes = std::size_t{64} << 10;
// Limit of eager bytes in transit or unmatched; each message counts as cost_of().
inline constexpr std::uint64_t kMessageCredit = std::uint64_t{1} << 20;
constexpr std::uint64_t cost_of(std::uint64_t length) { return 64 + length; }
// The maximum number of unanswered offers to a rank.
inline constexpr std::size_t kMaxOffers = std::size_t{1} << 16;

enum class Direction { to_receiver, to_sender };

// Throws Internal for a frame that is invalid in this direction.
MessageFrame parse_message_frame(std::span<const std::byte, kMessageFrameBytes> bytes, Direction direction);

inline std::array<std::byte, kMessageFrameBytes> to_bytes(const MessageFrame& frame) {
  return std::bit_cast<std::array<std::byte, kMessageFrameBytes>>(frame);
}

// An established connection: queued output and unread input.
class Connection {
 public:
  // Reads ahead at most `buffer_bytes`.
  Connection(Socket socket, std::size_t buffer_bytes) : socket_(std::move(socket)), buffer_(buffer_bytes) {}

  int fd() const { return socket_.fd(); }

  // Queues a frame.
  void push(const MessageFrame& frame) {
    output_.push_back({.header = to_bytes(frame), .payload = {}, .send = std::nullopt});
  }

  // Queues a frame with the payload of a send, which completes when the kernel has taken all of it.
  void push(const MessageFrame& frame, Transfer send) {
    const std::span<const std::byte> payload = send.message.memory;
    output_.push_back({.header = to_bytes(frame), .payload = payload, .send = std::move(send)});
  }

  bool has_output() const { return !output_.empty(); }

  // Passes output to the kernel. Returns false if the connection is closed.
  bool flush() {
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

  // Closes the sending direction.
  void finish_output() { shutdown(fd(), SHUT_WR); }

  // Removes and returns the sends that are not completely sent: their memory is no longer read.
  std::vector<Transfer> take_pending_output() {
    std::vector<Transfer> sends;
    for (Outgoing& next : output_) {
      if (next.send) sends.push_back(std::move(*next.send));
    }
    output_.clear();
    front_sent_ = 0;
    return sends;
  }

  // Input that was received and not consumed yet.
  std::span<const std::byte> input() const { return std::span(buffer_).subspan(begin_, end_ - begin_); }
  void consume(std::size_t bytes) { begin_ += bytes; }

  // Reads further input into the buffer. Returns the number of bytes, 0 if none has arrived, empty if the connection is
  // closed.
  std::optional<std::size_t> fill() {
    if (begin_ > 0) std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
    const auto count = socket_.receive_some(std::span(buffer_).subspan(end_));
    end_ += count.value_or(0);
    return count;
  }

  // Reads directly into `memory`; the buffer must be empty. Returns as fill() does.
  std::optional<std::size_t> read_into(std::span<std::byte> memory) { return socket_.receive_some(memory); }

 private:
  struct Outgoing {
    std::array<std::byte, kMessageFrameBytes> header;
    std::span<const std::byte> payload;
    std::optional<Transfer> send;
    std::size_t size() const { return header.size() + payload.size(); }
  };

  static constexpr std::size_t kBuffersPerCall = 64;

  // Appends the part of `bytes` behind the first `skip`, and decrements `skip`.
  static void add_rest(std::span<const std::byte> bytes, std::size_t& skip,
                       std::span<std::span<const std::byte>> buffers, std::size_t& count) {
    const std::size_t skipped = std::min(skip, bytes.size());
    skip -= skipped;
    if (skipped < bytes.size()) buffers[count++] = bytes.subspan(skipped);
  }

  Socket socket_;
  std::deque<Outgoing> output_;
  std::size_t front_sent_ = 0;  // sent bytes of the first entry
  std::vector<std::byte> buffer_;
  std::size_t begin_ = 0, end_ = 0;  // unread input in buffer_
};

}  // namespace hvd
