#include "ops/channel/connection.h"

namespace hvd {

namespace {

using Kind = MessageFrame::Kind;

// An upper bound for the size of memory.
constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 48;

std::uint64_t longest(Kind kind) {
  switch (kind) {
    case Kind::hello: return UINT64_MAX;  // an arbitrary word
    case Kind::message: return kEagerBytes;
    case Kind::credit: return kMessageCredit;
    case Kind::offer:
    case Kind::data:
    case Kind::refused: return kMaxBytes;
    case Kind::fetch:
    case Kind::taken: return 0;
  }
  return 0;
}

bool goes(Kind kind, Direction direction) {
  const bool to_receiver = kind >= Kind::hello && kind <= Kind::data;
  const bool to_sender = kind >= Kind::credit && kind <= Kind::refused;
  return direction == Direction::to_receiver ? to_receiver : to_sender;
}

}  // namespace

MessageFrame parse_message_frame(std::span<const std::byte, kMessageFrameBytes> bytes, Direction direction) {
  MessageFrame frame;
  std::memcpy(&frame, bytes.data(), sizeof frame);
  if (frame.magic != MessageFrame::kMagic) throw Internal("malformed message: it does not begin as one");
  const auto kind = std::to_string(static_cast<std::uint32_t>(frame.kind));
  if (!goes(frame.kind, direction)) throw Internal("malformed message: kind " + kind + " is not for this direction");
  if (frame.length > longest(frame.kind)) {
    throw Internal("malformed message: kind " + kind + " with a length of " + std::to_string(frame.length));
  }
  return frame;
}

}  // namespace hvd
