// The frame of the message protocol between two ranks: 48 bytes, little endian. docs/wire-format.md describes the
// protocol. Pure: parses bytes into a checked frame.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

namespace hvd {

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

}  // namespace hvd
