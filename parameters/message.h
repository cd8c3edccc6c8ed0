// Requests of workers to parameter servers, and their answers: headers of 48 bytes, little endian, each with a payload.
// docs/wire-format.md describes the protocol. Pure: parses bytes into checked headers.
//
// A worker's requests to a shard are numbered. The shard answers all in their order, and applies one that changes
// something only if its number is above the last one applied: a worker whose connection broke sends again what was not
// answered.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "core/base/error.h"

namespace hvd {

enum class PsOp : std::uint8_t {
  hello = 1,          // the first request on a connection. payload: Hello
  open_table = 2,     // payload: a table's spec. The answer's `rows` is the table's number
  pull = 3,           // payload: `rows` keys. Answer: their rows
  push = 4,           // payload: `rows` keys, then their gradients
  push_pull = 5,      // both: the rows after the push
  clock = 6,          // the worker has finished `clock` clocks
  leave = 7,          // the worker has no more to do; nobody waits for it any longer
  learning_rate = 8,  // payload: float32, of a table
  stats = 9,          // Answer: text, a line for each table
  snapshot = 10,      // payload: a folder. Answer once the shard's state is in a file there
  restore = 11,       // payload: a folder. Adds what snapshots there have of this shard
  fill = 12,          // as push: the values of rows that do not exist yet; others stay as they are
  // Between the two servers that have a shard, on a connection of their own that `follow` begins; what the primary
  // applies it passes on as it came, and so it sends `state` in parts, until both have the same.
  follow = 13,   // the receiver is to be a replica of the shard
  state = 14,    // payload: a part of the shard's state; flags 1: the part goes on in the next request
  in_step = 15,  // payload: the generation. All of the state was sent: no answer is ahead of the replica any more
  forget = 16,   // the worker is lost
  refused = 17,  // a numbered request that changes nothing, whenever it comes again. payload: why
  evicted = 18,  // payload: the keys, `rows` of them, of rows of a table that the primary has evicted
};
inline constexpr int kPsOps = 18;
constexpr bool is_between_servers(PsOp op) { return op >= PsOp::follow; }
inline constexpr std::uint8_t kGoesOn = 1;

struct PsRequest {
  static constexpr std::uint32_t kMagic = 0x64766804;

  std::uint32_t magic = kMagic;
  PsOp op{};
  std::uint8_t flags = 0;
  std::uint16_t table = 0;
  std::uint64_t sequence = 0;
  std::uint64_t incarnation = 0;  // of the worker
  std::uint32_t worker = 0;
  std::uint32_t clock = 0;
  std::uint32_t shard = 0;
  std::uint32_t rows = 0;
  std::uint32_t bytes = 0;  // of the payload
  std::uint32_t reserved = 0;

  bool operator==(const PsRequest&) const = default;
};

struct PsAnswer {
  static constexpr std::uint32_t kMagic = 0x64766805;

  std::uint32_t magic = kMagic;
  std::uint32_t status = 0;    // a StatusCode; the payload of an error is its text
  std::uint64_t sequence = 0;  // of the request
  std::uint64_t version = 0;   // updates that the table's rows on this shard have had; hello: the worker's clock
  std::uint32_t min_clock = 0;
  std::uint32_t rows = 0;
  std::uint32_t bytes = 0;  // of the payload
  std::uint32_t reserved = 0;
  // hello: the worker's last request that was applied; `rows` is 1 if the shard has a state. open_table: 0 if pulls and
  // pushes wait for the table's first values, else 1.
  std::uint64_t applied = 0;

  bool operator==(const PsAnswer&) const = default;
};

inline constexpr std::size_t kPsHeaderBytes = 48;
static_assert(sizeof(PsRequest) == kPsHeaderBytes && std::is_trivially_copyable_v<PsRequest>);
static_assert(sizeof(PsAnswer) == kPsHeaderBytes && std::is_trivially_copyable_v<PsAnswer>);
static_assert(std::endian::native == std::endian::little, "the wire format is little endian");

// The payload of PsOp::hello.
struct PsHello {
  static constexpr std::uint32_t kProtocol = 3;
  std::uint32_t protocol = kProtocol;
  std::uint32_t workers = 0;  // how many the job has; 0: they come and go, in an elastic job
};

// Frames begin at multiples of 8 bytes of the stream, so that payloads are aligned.
inline constexpr std::size_t kMaxPsPayload = std::size_t{512} << 10;
constexpr std::size_t ps_frame_bytes(std::size_t payload) { return kPsHeaderBytes + (payload + 7) / 8 * 8; }
inline constexpr std::uint32_t kMaxPsRows = 1u << 16;
// A worker's unanswered requests to one shard, at most; as many refusals are remembered.
inline constexpr std::size_t kMaxPsUnanswered = 4096;

// What a request can change happens once, whatever is sent twice.
constexpr bool is_numbered(PsOp op) {
  return op == PsOp::push || op == PsOp::push_pull || op == PsOp::clock || op == PsOp::learning_rate;
}

// What a replica needs to have as well. `restore` changes the shard otherwise: then the replica begins anew.
constexpr bool changes_shard(PsOp op) {
  return is_numbered(op) || op == PsOp::hello || op == PsOp::open_table || op == PsOp::leave || op == PsOp::fill ||
         op == PsOp::forget || op == PsOp::refused;
}

// Throws Internal for a header that no peer of this protocol sends; the connection must then be closed.
inline PsRequest parse_request(std::span<const std::byte, kPsHeaderBytes> bytes) {
  PsRequest request;
  std::memcpy(&request, bytes.data(), sizeof request);
  const auto op = static_cast<int>(request.op);
  if (request.magic != PsRequest::kMagic || op < 1 || op > kPsOps || request.bytes > kMaxPsPayload ||
      request.rows > kMaxPsRows || request.flags > (request.op == PsOp::state ? kGoesOn : 0) || request.reserved != 0) {
    throw Internal("malformed request to a parameter server");
  }
  return request;
}

// For a payload that does not belong to its header: throws Internal.
inline void require_payload(bool holds) {
  if (!holds) throw Internal("a request to a parameter server whose payload does not belong to its header");
}

// Of a push or a fill: keys, and for each a row of float32.
inline void require_rows(const PsRequest& request, std::span<const std::byte> payload, std::size_t width) {
  require_payload(payload.size() == std::size_t{request.rows} * (sizeof(std::uint64_t) + width * sizeof(float)));
}

inline PsAnswer parse_answer(std::span<const std::byte, kPsHeaderBytes> bytes) {
  PsAnswer answer;
  std::memcpy(&answer, bytes.data(), sizeof answer);
  if (answer.magic != PsAnswer::kMagic || answer.status > static_cast<std::uint32_t>(StatusCode::internal) ||
      answer.bytes > kMaxPsPayload || answer.rows > kMaxPsRows || answer.reserved != 0) {
    throw Internal("malformed answer of a parameter server");
  }
  return answer;
}

}  // namespace hvd
