// Length-prefixed messages on a byte stream: 4 bytes magic, 4 bytes length (little endian), then the payload.
//
// FrameReader is pure (bytes in, messages out), bounded, and fuzzed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace hvd {

using Bytes = std::vector<std::byte>;

inline constexpr std::uint32_t kFrameMagic = 0x64766801;
inline constexpr std::size_t kFrameHeaderBytes = 8;
inline constexpr std::size_t kMaxFrameBytes = 64u << 20;

// Header and payload as one buffer. Throws InvalidArgument above kMaxFrameBytes.
Bytes make_frame(std::span<const std::byte> payload);

class FrameReader {
 public:
  explicit FrameReader(std::size_t max_payload = kMaxFrameBytes);

  // Appends any part of the stream. Memory grows only with bytes that have arrived.
  void feed(std::span<const std::byte> bytes);

  // The next complete message, if any. Throws Internal on a wrong magic or a length above the limit; the connection
  // must then be closed.
  std::optional<Bytes> next();

 private:
  std::size_t max_payload_;
  Bytes buffer_;
  std::size_t consumed_ = 0;
};

}  // namespace hvd
