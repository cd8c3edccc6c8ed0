// A shard against any requests and any state: what it refuses changes nothing, and what it is can be written and read.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "core/base/error.h"
#include "core/net/byte_codec.h"
#include "parameters/message.h"
#include "parameters/shard.h"

namespace {

using hvd::Bytes;

std::vector<Bytes> state_of(const hvd::Shard& shard) {
  std::vector<Bytes> parts;
  for (hvd::StatePosition position; parts.empty() || !parts.back().empty();) {
    parts.push_back(shard.write_state(position));
  }
  return parts;
}

std::span<const std::byte> take(std::span<const std::byte>& from, std::size_t count) {
  const auto taken = from.first(std::min(count, from.size()));
  from = from.subspan(taken.size());
  return taken;
}

void request(hvd::Shard& shard, std::span<const std::byte>& from, bool is_own_state) {
  const auto head = take(from, hvd::kPsHeaderBytes);
  if (head.size() < hvd::kPsHeaderBytes) return;
  const hvd::PsRequest request = hvd::parse_request(head.first<hvd::kPsHeaderBytes>());
  const auto rest = take(from, request.bytes);
  const Bytes payload(rest.begin(), rest.end());  // aligned, as in a pipe
  const std::vector<Bytes> before = state_of(shard);
  try {
    if (!shard.is_ready(request)) return;
    Bytes answer(shard.answer_bytes(request));
    hvd::PsAnswer result = shard.apply(request, shard.compensate(request, payload), answer);
    if (result.bytes != answer.size() || result.sequence != request.sequence) __builtin_trap();
    std::array<std::byte, hvd::kPsHeaderBytes> written;
    std::memcpy(written.data(), &result, sizeof result);
    if (hvd::parse_answer(written) != result) __builtin_trap();
  } catch (const hvd::Error&) {
    if (is_own_state && state_of(shard) != before) __builtin_trap();
  }
}

void check_answer(std::span<const std::byte> bytes) {
  if (bytes.size() < hvd::kPsHeaderBytes) return;
  try {
    if (hvd::parse_answer(bytes.first<hvd::kPsHeaderBytes>()).bytes > hvd::kMaxPsPayload) __builtin_trap();
  } catch (const hvd::Internal&) {
  }
}

void check_spec(std::span<const std::byte> bytes) {
  hvd::ByteReader reader(bytes);
  try {
    const hvd::TableSpec spec = hvd::read_table_spec(reader);
    hvd::ByteWriter writer;
    writer.put(spec);
    if (!std::ranges::equal(writer.take(), bytes.first(bytes.size() - reader.remaining()))) __builtin_trap();
  } catch (const hvd::Error&) {
  }
}

}  // namespace

// A byte that says what follows: a request, a part of a state with its length, a worker that is lost.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  auto from = std::as_bytes(std::span(data, size));
  check_answer(from);
  check_spec(from);
  hvd::Shard shard(0, 1, std::size_t{4} << 20);
  bool is_own_state = true;
  while (!from.empty()) {
    const auto kind = static_cast<unsigned>(take(from, 1)[0]);
    try {
      if (kind < 0xf0) {
        request(shard, from, is_own_state);
      } else if (kind < 0xf8) {
        is_own_state = false;
        const auto length = take(from, 2);
        if (length.size() < 2) break;
        shard.read_state(take(from, static_cast<std::size_t>(length[0]) | static_cast<std::size_t>(length[1]) << 8));
      } else {
        shard.forget(kind - 0xf8);
      }
    } catch (const hvd::Error&) {
    }
  }
  (void)shard.stats();
  const auto parts = state_of(shard);
  hvd::Shard other(0, 1, 0);
  for (std::size_t i = 0; i + 1 < parts.size(); ++i) other.read_state(parts[i]);
  if (state_of(other) != parts) __builtin_trap();
  return 0;
}
