// FrameReader against any stream: it never reads or keeps more than it was given, and where the stream is cut makes
// no difference to what comes out.
#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/error.h"
#include "core/net/frame.h"

namespace {

struct Outcome {
  std::vector<hvd::Bytes> messages;
  bool refused = false;
  bool operator==(const Outcome&) const = default;
};

constexpr std::size_t kMaxPayload = 1000;

Outcome read_all(std::span<const std::byte> stream, std::size_t piece) {
  Outcome outcome;
  hvd::FrameReader reader(kMaxPayload);
  try {
    while (!stream.empty()) {
      const auto next = stream.first(std::min(piece, stream.size()));
      stream = stream.subspan(next.size());
      reader.feed(next);
      while (auto message = reader.next()) outcome.messages.push_back(std::move(*message));
    }
  } catch (const hvd::Internal&) {
    outcome.refused = true;
  }
  return outcome;
}

}  // namespace

// The first byte says how long the pieces are, the rest is the stream.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const auto stream = std::as_bytes(std::span(data, size)).subspan(1);
  const Outcome whole = read_all(stream, size);
  if (read_all(stream, 1 + data[0] % 64u) != whole) __builtin_trap();
  for (const hvd::Bytes& message : whole.messages) {
    if (message.size() > kMaxPayload) __builtin_trap();
  }
  return 0;
}
