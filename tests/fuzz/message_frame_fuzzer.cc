// Frames of messages against any bytes: what is accepted is what its sender has written, and within the limits.
#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "core/base/error.h"
#include "ops/channel/connection.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  std::array<std::byte, hvd::kMessageFrameBytes> bytes{};
  std::copy_n(reinterpret_cast<const std::byte*>(data), std::min(size, bytes.size()), bytes.begin());
  for (const auto direction : {hvd::Direction::to_receiver, hvd::Direction::to_sender}) {
    try {
      const hvd::MessageFrame frame = hvd::parse_message_frame(bytes, direction);
      if (hvd::to_bytes(frame) != bytes) __builtin_trap();
      const bool is_message = frame.kind == hvd::MessageFrame::Kind::message;
      if (is_message && frame.length > hvd::kEagerBytes) __builtin_trap();
    } catch (const hvd::Internal&) {
    }
  }
  return 0;
}
