#include "core/negotiation/wire.h"

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/net/byte_codec.h"

namespace hvd {
namespace {

// First byte of each message.
constexpr std::uint8_t kRankMessage = 1;
constexpr std::uint8_t kCoordinatorMessage = 2;

// First byte of each entry.
constexpr std::uint8_t kCachedEntry = 0;
constexpr std::uint8_t kResponseEntry = 1;

constexpr std::uint32_t kBitsPerWord = 64;
constexpr std::size_t kMinRequestBytes = 42;
constexpr std::size_t kMinTensorBytes = 2;
constexpr std::size_t kMinEntryBytes = 5;

[[noreturn]] void malformed(const std::string& what) { throw Internal("malformed message: " + what); }

// ---- Writing

template <typename T>
void put_list(ByteWriter& writer, const std::vector<T>& values) {
  writer.put(static_cast<std::uint32_t>(values.size()));
  for (const T value : values) writer.put(value);
}

void put_text(ByteWriter& writer, std::string_view text) { writer.put_string(text.substr(0, kMaxTextBytes)); }

void put_hits(ByteWriter& writer, const std::vector<std::uint32_t>& hits) {
  std::vector<std::uint64_t> words;
  for (const std::uint32_t slot : hits) {
    if (slot >= kMaxCacheSlots) throw InvalidArgument("cache slot " + std::to_string(slot) + " is beyond the limit");
    const std::size_t word = slot / kBitsPerWord;
    if (word >= words.size()) words.resize(word + 1);
    words[word] |= std::uint64_t{1} << slot % kBitsPerWord;
  }
  put_list(writer, words);
}

void put_request(ByteWriter& writer, const Request& request) {
  if (request.name.size() > kMaxNameBytes) {
    throw InvalidArgument("an operation's name has more than " + std::to_string(kMaxNameBytes) + " bytes");
  }
  writer.put(request.process_set);
  writer.put_string(request.name);
  writer.put(static_cast<std::uint8_t>(request.collective));
  writer.put(static_cast<std::uint8_t>(request.op));
  writer.put(request.root);
  writer.put(request.prescale);
  writer.put(request.postscale);
  writer.put(request.device);
  writer.put(static_cast<std::uint32_t>(request.tensors.size()));
  for (const TensorSpec& tensor : request.tensors) {
    if (tensor.shape.size() > kMaxDimensions) throw InvalidArgument("a tensor has too many dimensions");
    writer.put(static_cast<std::uint8_t>(tensor.dtype));
    writer.put(static_cast<std::uint8_t>(tensor.shape.size()));
    for (const std::int64_t dimension : tensor.shape) writer.put(dimension);
  }
  put_list(writer, request.splits);
}

void put_response(ByteWriter& writer, const Response& response) {
  writer.put(static_cast<std::uint8_t>(response.kind));
  put_request(writer, response.request);
  writer.put(response.slot);
  writer.put(response.contributing);
  writer.put(static_cast<std::uint32_t>(response.rows.size()));
  for (const auto& rows : response.rows) put_list(writer, rows);
  writer.put(static_cast<std::uint8_t>(response.status.code()));
  put_text(writer, response.status.message());
  put_list(writer, response.ranks);
  writer.put(response.last_joined);
  writer.put(static_cast<std::uint32_t>(response.schedule.size()));
  for (const auto& group : response.schedule) put_list(writer, group);
}

// ---- Reading

template <typename Enum>
Enum get_enum(ByteReader& reader, Enum last, const char* what) {
  const auto value = reader.get<std::uint8_t>();
  if (value > static_cast<std::uint8_t>(last)) malformed(std::string("unknown ") + what + " " + std::to_string(value));
  return static_cast<Enum>(value);
}

std::string get_limited(ByteReader& reader, std::size_t limit, const char* what) {
  std::string text = reader.get_string();
  if (text.size() > limit) malformed(std::string(what) + " of " + std::to_string(text.size()) + " bytes");
  return text;
}

std::int64_t get_non_negative(ByteReader& reader, const char* what) {
  const auto value = reader.get<std::int64_t>();
  if (value < 0) malformed(std::string(what) + " " + std::to_string(value));
  return value;
}

std::vector<std::int64_t> get_row_counts(ByteReader& reader, const char* what) {
  std::vector<std::int64_t> values(reader.get_count(sizeof(std::int64_t)));
  for (std::int64_t& value : values) value = get_non_negative(reader, what);
  return values;
}

std::uint32_t get_slot(ByteReader& reader) {
  const auto slot = reader.get<std::uint32_t>();
  if (slot >= kMaxCacheSlots) malformed("cache slot " + std::to_string(slot));
  return slot;
}

std::vector<std::uint32_t> get_hits(ByteReader& reader) {
  const std::uint32_t words = reader.get_count(sizeof(std::uint64_t));
  if (words > kMaxCacheSlots / kBitsPerWord) malformed("hits on " + std::to_string(words) + " words of cache slots");
  std::vector<std::uint32_t> hits;
  for (std::uint32_t word = 0; word < words; ++word) {
    for (auto bits = reader.get<std::uint64_t>(); bits != 0; bits &= bits - 1) {
      hits.push_back(word * kBitsPerWord + static_cast<std::uint32_t>(std::countr_zero(bits)));
    }
  }
  return hits;
}

TensorSpec get_tensor(ByteReader& reader) {
  TensorSpec tensor;
  tensor.dtype = get_enum(reader, static_cast<DType>(kDTypeCount - 1), "dtype");
  const auto dimensions = reader.get<std::uint8_t>();
  if (dimensions > kMaxDimensions) malformed("a tensor of " + std::to_string(dimensions) + " dimensions");
  // A dimension of 0 is left out of the product, so that no order of multiplying and no part of the shape overflows.
  auto bytes = static_cast<std::int64_t>(size_of(tensor.dtype));
  tensor.shape.reserve(dimensions);
  for (int i = 0; i < dimensions; ++i) {
    const std::int64_t dimension = get_non_negative(reader, "dimension");
    if (__builtin_mul_overflow(bytes, std::max<std::int64_t>(dimension, 1), &bytes)) {
      malformed("a tensor of more than 2^63 bytes");
    }
    tensor.shape.push_back(dimension);
  }
  return tensor;
}

Request get_request(ByteReader& reader) {
  Request request;
  request.process_set = reader.get<std::int32_t>();
  if (request.process_set < 0) malformed("process set " + std::to_string(request.process_set));
  request.name = get_limited(reader, kMaxNameBytes, "a name");
  request.collective = get_enum(reader, Collective::join, "collective");
  request.op = get_enum(reader, ReduceOp::product, "reduce op");
  request.root = reader.get<std::int32_t>();
  request.prescale = reader.get<double>();
  request.postscale = reader.get<double>();
  request.device = reader.get<std::int32_t>();
  const std::uint32_t tensors = reader.get_count(kMinTensorBytes);
  for (std::uint32_t i = 0; i < tensors; ++i) request.tensors.push_back(get_tensor(reader));
  request.splits = get_row_counts(reader, "split");
  return request;
}

// What an execute response must have, so that whoever carries it out can index its parts.
void check_execute(const Response& response) {
  const Request& request = response.request;
  const std::size_t tensors = request.tensors.size();
  const auto& rows = response.rows;
  if (request.collective == Collective::join) malformed("a join to be executed");
  if (response.contributing == 0) malformed("an operation that no rank has asked for");
  if ((request.collective == Collective::barrier) != (tensors == 0)) malformed("wrong number of tensors");
  const bool by_rank = request.collective == Collective::allgather || request.collective == Collective::alltoall;
  if (by_rank || request.collective == Collective::reducescatter) {
    for (const TensorSpec& tensor : request.tensors) {
      if (tensor.shape.empty()) malformed("a tensor without dimensions");
    }
  }
  const bool alltoall = request.collective == Collective::alltoall;
  if (alltoall && tensors != 1) malformed("an alltoall of " + std::to_string(tensors) + " tensors");
  if (rows.size() != (alltoall ? request.splits.size() : by_rank ? tensors : 0)) malformed("wrong number of row lists");
  for (const auto& list : rows) {
    if (list.size() != (alltoall ? rows.size() : rows.front().size())) malformed("row lists of different lengths");
    if (static_cast<std::size_t>(response.contributing) > list.size()) malformed("more contributing ranks than rows");
  }
}

// Every slot once, in groups of at least one.
Schedule get_schedule(ByteReader& reader) {
  Schedule schedule(reader.get_count(2 * sizeof(std::uint32_t)));
  std::vector<bool> seen;
  for (auto& group : schedule) {
    group.resize(reader.get_count(sizeof(std::uint32_t)));
    if (group.empty()) malformed("a schedule with an empty group");
    for (std::uint32_t& slot : group) {
      slot = get_slot(reader);
      if (slot >= seen.size()) seen.resize(slot + std::size_t{1});
      if (seen[slot]) malformed("a schedule with cache slot " + std::to_string(slot) + " twice");
      seen[slot] = true;
    }
  }
  return schedule;
}

Response get_response(ByteReader& reader) {
  Response response;
  response.kind = get_enum(reader, Response::Kind::lock, "kind of response");
  response.request = get_request(reader);
  response.slot = reader.get<std::uint32_t>();
  if (response.slot >= kMaxCacheSlots && response.slot != kNoSlot) malformed("cache slot");
  response.contributing = reader.get<std::int32_t>();
  if (response.contributing < 0) malformed(std::to_string(response.contributing) + " contributing ranks");
  const std::uint32_t lists = reader.get_count(sizeof(std::uint32_t));
  for (std::uint32_t i = 0; i < lists; ++i) response.rows.push_back(get_row_counts(reader, "row count"));
  const auto code = get_enum(reader, StatusCode::internal, "status code");
  response.status = Status(code, get_limited(reader, kMaxTextBytes, "a status text"));
  response.ranks.resize(reader.get_count(sizeof(std::int32_t)));
  for (std::int32_t& rank : response.ranks) {
    rank = reader.get<std::int32_t>();
    if (rank < 0) malformed("rank " + std::to_string(rank));
  }
  response.last_joined = reader.get<std::int32_t>();
  if (response.last_joined < -1) malformed("rank " + std::to_string(response.last_joined));
  response.schedule = get_schedule(reader);
  if ((response.kind == Response::Kind::lock) != !response.schedule.empty()) malformed("a schedule where none belongs");
  if (response.kind == Response::Kind::execute) check_execute(response);
  if (response.kind == Response::Kind::error && response.status.ok()) malformed("an error without a status");
  return response;
}

CoordinatorMessage::Entry get_entry(ByteReader& reader) {
  const auto kind = reader.get<std::uint8_t>();
  if (kind == kCachedEntry) return {.cached_slot = get_slot(reader), .response = std::nullopt};
  if (kind != kResponseEntry) malformed("unknown entry " + std::to_string(kind));
  return {.cached_slot = kNoSlot, .response = get_response(reader)};
}

void expect_kind(ByteReader& reader, std::uint8_t kind) {
  if (reader.get<std::uint8_t>() != kind) malformed("not the kind that is expected here");
}

}  // namespace

Bytes encode(const RankMessage& message) {
  ByteWriter writer;
  writer.put(kRankMessage);
  writer.put(message.applied);
  writer.put(static_cast<std::uint8_t>(message.shut_down));
  put_hits(writer, message.hits);
  writer.put(static_cast<std::uint32_t>(message.requests.size()));
  for (const Request& request : message.requests) put_request(writer, request);
  return writer.take();
}

RankMessage decode_rank_message(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  expect_kind(reader, kRankMessage);
  RankMessage message;
  message.applied = reader.get<std::uint64_t>();
  const auto shut_down = reader.get<std::uint8_t>();
  if (shut_down > 1) malformed("neither true nor false");
  message.shut_down = shut_down == 1;
  message.hits = get_hits(reader);
  const std::uint32_t requests = reader.get_count(kMinRequestBytes);
  for (std::uint32_t i = 0; i < requests; ++i) message.requests.push_back(get_request(reader));
  reader.expect_end();
  return message;
}

Bytes encode(const CoordinatorMessage& message) {
  if (message.entries.size() > kMaxEntries) throw InvalidArgument("a message of too many responses");
  ByteWriter writer;
  writer.put(kCoordinatorMessage);
  writer.put(message.number);
  writer.put(static_cast<std::uint32_t>(message.entries.size()));
  for (const CoordinatorMessage::Entry& entry : message.entries) {
    writer.put(entry.response ? kResponseEntry : kCachedEntry);
    if (entry.response) {
      put_response(writer, *entry.response);
    } else if (entry.cached_slot < kMaxCacheSlots) {
      writer.put(entry.cached_slot);
    } else {
      throw InvalidArgument("cache slot " + std::to_string(entry.cached_slot) + " is beyond the limit");
    }
  }
  writer.put(static_cast<std::uint32_t>(message.notices.size()));
  for (const std::string& notice : message.notices) put_text(writer, notice);
  return writer.take();
}

CoordinatorMessage decode_coordinator_message(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  expect_kind(reader, kCoordinatorMessage);
  CoordinatorMessage message;
  message.number = reader.get<std::uint64_t>();
  const std::uint32_t entries = reader.get_count(kMinEntryBytes);
  if (entries > kMaxEntries) malformed(std::to_string(entries) + " entries");
  for (std::uint32_t i = 0; i < entries; ++i) message.entries.push_back(get_entry(reader));
  const std::uint32_t notices = reader.get_count(sizeof(std::uint32_t));
  for (std::uint32_t i = 0; i < notices; ++i) {
    message.notices.push_back(get_limited(reader, kMaxTextBytes, "a notice"));
  }
  reader.expect_end();
  return message;
}

}  // namespace hvd
