#include "core/net/frame.h"

#include <cstring>
#include <string>

#include "core/base/error.h"

namespace hvd {

namespace {

std::uint32_t read_u32(const std::byte* at) {
  std::uint32_t value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

}  // namespace

Bytes make_frame(std::span<const std::byte> payload) {
  if (payload.size() > kMaxFrameBytes) {
    throw InvalidArgument("a message of " + std::to_string(payload.size()) + " bytes is longer than a frame may be");
  }
  const std::uint32_t header[2] = {kFrameMagic, static_cast<std::uint32_t>(payload.size())};
  static_assert(sizeof header == kFrameHeaderBytes);
  Bytes frame;
  frame.reserve(sizeof header + payload.size());
  const auto* raw = reinterpret_cast<const std::byte*>(header);
  frame.insert(frame.end(), raw, raw + sizeof header);
  frame.insert(frame.end(), payload.begin(), payload.end());
  return frame;
}

FrameReader::FrameReader(std::size_t max_payload) : max_payload_(max_payload) {}

void FrameReader::feed(std::span<const std::byte> bytes) {
  // Moving the rest to the front only when it is the smaller part keeps the cost of a byte constant.
  if (consumed_ > buffer_.size() / 2) {
    buffer_.erase(buffer_.begin(), buffer_.begin() + static_cast<std::ptrdiff_t>(consumed_));
    consumed_ = 0;
  }
  buffer_.insert(buffer_.end(), bytes.begin(), bytes.end());
}

std::optional<Bytes> FrameReader::next() {
  const auto rest = std::span<const std::byte>(buffer_).subspan(consumed_);
  if (rest.size() >= sizeof kFrameMagic && read_u32(rest.data()) != kFrameMagic) {
    throw Internal("malformed frame: it does not begin with hvd's magic number");
  }
  if (rest.size() < kFrameHeaderBytes) return std::nullopt;
  const std::size_t length = read_u32(rest.data() + sizeof kFrameMagic);
  if (length > max_payload_) {
    throw Internal("malformed frame: " + std::to_string(length) + " bytes where at most " +
                   std::to_string(max_payload_) + " are allowed");
  }
  if (rest.size() - kFrameHeaderBytes < length) return std::nullopt;
  const auto payload = rest.subspan(kFrameHeaderBytes, length);
  consumed_ += kFrameHeaderBytes + length;
  return Bytes(payload.begin(), payload.end());
}

}  // namespace hvd
