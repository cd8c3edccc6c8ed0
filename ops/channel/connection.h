// A connection for messages between two ranks, at either end: its frames, how it is established, and the established
// connection. Used on the channel's thread.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "core/net/authentication.h"
#include "core/net/socket.h"
#include "ops/channel/matcher.h"

namespace hvd {

// The frame of the message protocol between two ranks: 48 bytes, little endian. docs/wire-format.md describes the
// protocol. Pure: parses bytes into a checked frame.
struct MessageFrame {
  static constexpr std::uint32_t kMagic = 0x64766803;

  enum class Kind : std::uint32_t {
    // From the sender of messages.
    hello = 1,    // first frame: the location of a word in the sender's memory. id: process, address, length: the word
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

// The size up to which a message may be sent before the receiver has requested it,
inline constexpr std::size_t kEagerBytes = std::size_t{64} << 10;
// and the limit for the sum of such messages that are in transit or waiting for a receive; each counts as cost_of().
inline constexpr std::uint64_t kMessageCredit = std::uint64_t{1} << 20;
constexpr std::uint64_t cost_of(std::uint64_t length) { return 64 + length; }
// The maximum number of unanswered offers to a rank.
inline constexpr std::size_t kMaxOffers = std::size_t{1} << 16;

enum class Direction { to_receiver, to_sender };

// Throws Internal for a frame that is invalid in this direction.
MessageFrame parse_message_frame(std::span<const std::byte, kMessageFrameBytes> bytes, Direction direction);

std::array<std::byte, kMessageFrameBytes> to_bytes(const MessageFrame& frame);

// A connection that is being established, with proof at both ends of the job's key (core/net/authentication.h).
// Advances as bytes arrive, so that a slow peer delays no other.
class ConnectionAttempt {
 public:
  // Throws PeerLost if the address refuses the connection.
  ConnectionAttempt(const Address& address, const JobKey& key, int this_rank);

  int fd() const { return socket_.fd(); }

  // Advances without blocking; returns true when both ends are authenticated. Throws PeerLost.
  bool advance();
  Socket take() { return std::move(socket_); }

 private:
  enum class Step { connecting, awaiting_challenge, awaiting_reply };

  // Returns false if some bytes have not arrived yet.
  bool read(std::span<std::byte> bytes);

  const std::string where_;
  ClientHandshake handshake_;
  Socket socket_;
  Step step_ = Step::connecting;
  std::size_t received_ = 0;
  Challenge challenge_;
  Reply reply_;
};

// An established connection: queued output and unread input.
class Connection {
 public:
  // Reads ahead at most `buffer_bytes`.
  Connection(Socket socket, std::size_t buffer_bytes) : socket_(std::move(socket)), buffer_(buffer_bytes) {}

  int fd() const { return socket_.fd(); }

  // Queues a frame, or a frame with the payload of a send, which is done once it is sent.
  void push(const MessageFrame& frame);
  void push(const MessageFrame& frame, Transfer send);
  bool has_output() const { return !output_.empty(); }
  // Passes output to the kernel. Returns false if the connection is closed.
  bool flush();
  // Closes the sending direction.
  void finish_output();
  // Returns the unsent sends, whose memory must not be read any more.
  std::vector<Transfer> give_up_output();

  // Input that was received and not consumed yet.
  std::span<const std::byte> input() const { return std::span(buffer_).subspan(begin_, end_ - begin_); }
  void consume(std::size_t bytes) { begin_ += bytes; }
  // Reads into the buffer, or, if it is empty, past it. Returns empty if it is closed, 0 if nothing arrived.
  std::optional<std::size_t> fill();
  std::optional<std::size_t> read_into(std::span<std::byte> memory) { return socket_.receive_some(memory); }

 private:
  struct Outgoing {
    std::array<std::byte, kMessageFrameBytes> header;
    std::span<const std::byte> payload;
    std::optional<Transfer> send;
    std::size_t size() const { return header.size() + payload.size(); }
  };

  Socket socket_;
  std::deque<Outgoing> output_;
  std::size_t front_sent_ = 0;  // sent bytes of the first entry
  std::vector<std::byte> buffer_;
  std::size_t begin_ = 0, end_ = 0;  // unread input in buffer_
};

}  // namespace hvd
