// Encoding and decoding of the control plane's messages; docs/wire-format.md describes the format.
//
// Pure. The decoders trust nothing: they check each value (ranges of enums, counts, dimensions and their product) and
// throw Internal("malformed message: ...") on the first invalid one. What a value means to a cache or to the operations
// in flight is checked by their owners (Coordinator, ResponseCache).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "core/control/protocol/messages.h"
#include "core/net/frame.h"
#include "core/operation/operation_spec.h"

namespace hvd {

// Longest text of an error or a warning; longer ones are truncated by the encoder.
inline constexpr std::size_t kMaxTextBytes = std::size_t{64} << 10;
// Upper bound of cache slots, whatever the configured capacity; bounds the bit vector of hits.
inline constexpr std::uint32_t kMaxCacheSlots = 1u << 20;

// Entries in one message; bounds what a rank allocates for a short message.
inline constexpr std::uint32_t kMaxEntries = 1u << 20;

// Upper bound of the rows in one message, as encoded: leaves room in a frame for everything else.
inline constexpr std::size_t kMaxRowBytes = std::size_t{60} << 20;
std::size_t row_bytes(const Response& response);

// Upper bound of rank numbers.
inline constexpr int kMaxRanks = 1 << 24;

// Throws InvalidArgument if a name, a slot or a count exceeds its limit.
Bytes encode(const SubtreeMessage& message);
Bytes encode(const ResponseList& message);

// The header of a SubtreeMessage with a single part and without a leave; the hits and requests stay encoded in `body`,
// so that equal content is recognised by its bytes.
struct OpaqueMessage {
  std::uint64_t applied_by_all = 0;
  RankSet ranks;
  std::uint64_t applied = 0;
  std::uint64_t latest = 0;
  std::span<const std::byte> body;
};
// Null if it is another kind of message. Throws Internal if what it reads is malformed.
std::optional<OpaqueMessage> peek(std::span<const std::byte> bytes);
Bytes encode(const OpaqueMessage& message);

SubtreeMessage decode_subtree_message(std::span<const std::byte> bytes);
ResponseList decode_response_list(std::span<const std::byte> bytes);

}  // namespace hvd
