// Any bytes as a subtree's message: refused, or understood for good, and then harmless to the coordinator.
#include <algorithm>
#include <cstdint>
#include <span>
#include <string>

#include "core/base/error.h"
#include "core/control/coordinator/coordinator.h"
#include "core/control/protocol/wire.h"
#include "core/control/tree/message_combiner.h"
#include "core/control/tree/request_aggregator.h"

namespace {

std::string describe(int rank) { return "rank " + std::to_string(rank); }

// All ranks send the same; whatever the coordinator answers can be read by them.
void negotiate(const hvd::SubtreeMessage& message) {
  const std::map<int, hvd::RankSet> whole = {{0, hvd::RankSet(0, 3)}};
  hvd::Coordinator coordinator({.size = 3, .sources = whole, .cache_capacity = 2}, describe);
  hvd::RequestAggregator request_aggregator(whole, hvd::Duration(1), describe);
  try {
    for (int round = 0; round < 3; ++round) {
      request_aggregator.receive(0, message, hvd::TimePoint{});
      if (const auto merged = request_aggregator.take(hvd::TimePoint{} + hvd::Duration(2))) {
        if (hvd::encode(hvd::decode_subtree_message(hvd::encode(*merged))) != hvd::encode(*merged)) __builtin_trap();
      }
      coordinator.receive(0, message, hvd::TimePoint{});
      const auto responses = coordinator.respond(hvd::TimePoint{});
      if (!responses) continue;
      if (hvd::encode(hvd::decode_response_list(hvd::encode(*responses))) != hvd::encode(*responses)) __builtin_trap();
      request_aggregator.observe(*responses);
      hvd::SubtreeMessage again = message;
      again.applied_by_all = responses->number;
      for (hvd::RankMessage& part : again.messages) part.applied = part.latest = responses->number;
      coordinator.receive(0, again, hvd::TimePoint{});
    }
  } catch (const hvd::Internal& error) {
    // A violation of the protocol; a response list that cannot be read would be a defect.
    if (std::string(error.what()).starts_with("malformed")) __builtin_trap();
  }
}

// A node that combines the messages of all ranks passes on what can be read, and nothing that cannot.
void combine(std::span<const std::byte> bytes, const hvd::SubtreeMessage& message) {
  if (const auto opaque = hvd::peek(bytes)) {
    if (!std::ranges::equal(hvd::encode(*opaque), bytes)) __builtin_trap();
  }
  hvd::MessageCombiner message_combiner({{0, hvd::RankSet(0)}, {1, hvd::RankSet(1, 3)}}, hvd::Duration(1));
  std::size_t messages = 0;
  for (const int source : {0, 1, 0}) {
    const auto released =
        message_combiner.receive(source, hvd::Bytes(bytes.begin(), bytes.end()), true, hvd::TimePoint{});
    messages += released.individual.size();
    if (released.combined) __builtin_trap();  // of ranks that are not the same
  }
  for (const auto& [source, held] : message_combiner.release_individually().individual) {
    ++messages;
    if (hvd::encode(held) != hvd::encode(message)) __builtin_trap();  // bytes: a factor may be no number
  }
  if (messages != 3) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  hvd::SubtreeMessage message;
  try {
    message = hvd::decode_subtree_message(std::as_bytes(std::span(data, size)));
  } catch (const hvd::Internal&) {
    return 0;
  }
  const hvd::Bytes written = hvd::encode(message);
  if (hvd::encode(hvd::decode_subtree_message(written)) != written) __builtin_trap();
  combine(std::as_bytes(std::span(data, size)), message);
  negotiate(message);
  return 0;
}
