// The control plane's messages as bytes; docs/wire-format.md describes them.
//
// Pure. The decoders trust nothing: they check every value for itself (ranges of enums, counts, dimensions and their
// product) and throw Internal("malformed message: ...") on the first that is wrong. What a value means to a cache or
// to the operations in flight is checked by those who know them (Coordinator, ResponseCache).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "core/negotiation/rank_message.h"
#include "core/negotiation/response.h"
#include "core/net/frame.h"

namespace hvd {

// Longest name of an operation. Longer ones are to be refused when they are submitted: no rank would decode them.
inline constexpr std::size_t kMaxNameBytes = 4096;
// Longest text of an error or a notice; longer ones are cut off on encoding.
inline constexpr std::size_t kMaxTextBytes = std::size_t{64} << 10;
// Cache slots are below this, whatever the configured capacity; bounds the bit vector of hits.
inline constexpr std::uint32_t kMaxCacheSlots = 1u << 20;

// Entries in one message; bounds what a short message can make a rank allocate.
inline constexpr std::uint32_t kMaxEntries = 1u << 20;

// Ranks are below this.
inline constexpr int kMaxRanks = 1 << 24;

// Throws InvalidArgument if a name, a slot or a count is beyond its limit.
Bytes encode(const SubtreeMessage& message);
Bytes encode(const CoordinatorMessage& message);

// A SubtreeMessage of one part in which nobody leaves, read only so far that one knows who speaks: what they say is
// left as bytes. Ranks that say the same, say it with the same bytes.
struct OpaqueMessage {
  std::uint64_t applied_by_all = 0;
  RankSet ranks;
  std::uint64_t applied = 0;
  std::uint64_t latest = 0;
  std::span<const std::byte> said;
};
// Null if it is something else. Throws Internal if what it reads is malformed.
std::optional<OpaqueMessage> peek(std::span<const std::byte> bytes);
Bytes encode(const OpaqueMessage& message);

SubtreeMessage decode_subtree_message(std::span<const std::byte> bytes);
CoordinatorMessage decode_coordinator_message(std::span<const std::byte> bytes);

}  // namespace hvd
