// Any bytes as a rank's message: refused, or understood for good, and then harmless to the coordinator.
#include <cstdint>
#include <span>
#include <string>

#include "core/base/error.h"
#include "core/negotiation/coordinator.h"
#include "core/negotiation/wire.h"

namespace {

std::string describe(int rank) { return "rank " + std::to_string(rank); }

// All ranks send the same; whatever the coordinator answers can be read by them.
void negotiate(const hvd::RankMessage& message) {
  hvd::Coordinator coordinator({.size = 3, .cache_capacity = 2}, describe);
  try {
    for (int rank = 0; rank < 3; ++rank) {
      coordinator.receive(rank, message, hvd::TimePoint{});
      const auto answer = coordinator.respond(hvd::TimePoint{});
      if (!answer) continue;
      if (hvd::encode(hvd::decode_coordinator_message(hvd::encode(*answer))) != hvd::encode(*answer)) __builtin_trap();
      hvd::RankMessage again = message;
      again.applied = answer->number;
      coordinator.receive(rank, again, hvd::TimePoint{});
    }
  } catch (const hvd::Internal& error) {
    // A violation of the protocol; an answer that cannot be read would be a defect.
    if (std::string(error.what()).starts_with("malformed")) __builtin_trap();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  hvd::RankMessage message;
  try {
    message = hvd::decode_rank_message(std::as_bytes(std::span(data, size)));
  } catch (const hvd::Internal&) {
    return 0;
  }
  const hvd::Bytes written = hvd::encode(message);
  if (hvd::encode(hvd::decode_rank_message(written)) != written) __builtin_trap();
  negotiate(message);
  return 0;
}
