#include "core/control/protocol/wire.h"

#include <algorithm>
#include <bit>
#include <string>

#include "core/base/error.h"
#include "core/control/protocol/agreement.h"
#include "core/net/byte_codec.h"

namespace hvd {
namespace {

// First byte of each message.
constexpr std::uint8_t kSubtreeMessage = 1;
constexpr std::uint8_t kResponseList = 2;

// First byte of each entry.
constexpr std::uint8_t kCachedEntry = 0;
constexpr std::uint8_t kResponseEntry = 1;

constexpr std::uint32_t kBitsPerWord = 64;
// Fields of a request in addition to name, collective and tensors, if not default.
constexpr std::uint8_t kHasProcessSet = 1;
constexpr std::uint8_t kHasRoot = 2;
constexpr std::uint8_t kHasScales = 4;
constexpr std::uint8_t kHasDevice = 8;
constexpr std::uint8_t kHasTensorCount = 16;  // other than one
constexpr std::uint8_t kHasSplits = 32;
constexpr std::uint8_t kHasPriority = 64;
constexpr std::uint8_t kAllSpecFlags = 127;

// Fields of a response in addition to kind and request.
constexpr std::uint8_t kHasSlot = 1;
constexpr std::uint8_t kHasContributing = 2;
constexpr std::uint8_t kHasRows = 4;
constexpr std::uint8_t kHasStatus = 8;
constexpr std::uint8_t kHasRanks = 16;
constexpr std::uint8_t kHasRank = 32;
constexpr std::uint8_t kHasSchedule = 64;
constexpr std::uint8_t kAllResponseFlags = 127;

// Longest common prefix of a name and the one before.
constexpr std::size_t kMaxSharedBytes = 255;

// Requests in all parts of one message; bounds what a node allocates for a short message.
constexpr std::uint32_t kMaxRequests = 1u << 20;

constexpr std::size_t kMinRequestBytes = 4;  // without the number of parts
constexpr std::size_t kMinRankMessageBytes = 29;
constexpr std::size_t kMinPartBytes = 8;
constexpr std::size_t kMinTensorBytes = 2;
constexpr std::size_t kMinEntryBytes = 5;

static_assert(kMaxRowBytes < kMaxFrameBytes &&
              kMaxAlltoallRanks * (4 + std::size_t{8} * kMaxAlltoallRanks) <= kMaxRowBytes);

const OperationSpec kUsual{};

constexpr std::int64_t Knobs::*kKnobs[] = {&Knobs::fusion_threshold_bytes, &Knobs::coalescing_us, &Knobs::chunk_bytes};

[[noreturn]] void malformed(const std::string& what) { throw Internal("malformed message: " + what); }

// ---- Writing

template <typename T>
void put_list(ByteWriter& writer, const std::vector<T>& values) {
  writer.put(static_cast<std::uint32_t>(values.size()));
  for (const T value : values) writer.put(value);
}

bool same_bits(double a, double b) { return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b); }

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

std::uint8_t flags_of(const OperationSpec& spec) {
  unsigned flags = 0;
  if (spec.process_set != kUsual.process_set) flags |= kHasProcessSet;
  if (spec.root != kUsual.root) flags |= kHasRoot;
  if (!same_bits(spec.prescale, 1.0) || !same_bits(spec.postscale, 1.0)) flags |= kHasScales;
  if (spec.device != kUsual.device) flags |= kHasDevice;
  if (spec.tensors.size() != 1) flags |= kHasTensorCount;
  if (!spec.splits.empty()) flags |= kHasSplits;
  if (spec.priority != kUsual.priority) flags |= kHasPriority;
  return static_cast<std::uint8_t>(flags);
}

// The length of the common prefix of two names.
std::size_t shared_bytes(std::string_view a, std::string_view b) {
  const std::size_t most = std::min({a.size(), b.size(), kMaxSharedBytes});
  return static_cast<std::size_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<std::ptrdiff_t>(most), b.begin()).first - a.begin());
}

// `before`: the name of the previous request in the message.
void put_spec(ByteWriter& writer, const OperationSpec& spec, std::string_view before) {
  if (spec.name.size() > kMaxNameBytes) {
    throw InvalidArgument("an operation's name has more than " + std::to_string(kMaxNameBytes) + " bytes");
  }
  const std::uint8_t flags = flags_of(spec);
  const std::string_view own = std::string_view(spec.name).substr(shared_bytes(spec.name, before));
  writer.put(flags);
  writer.put(static_cast<std::uint8_t>(spec.name.size() - own.size()));
  writer.put_varint(own.size());
  writer.put_bytes(std::as_bytes(std::span(own)));
  writer.put(static_cast<std::uint8_t>(static_cast<unsigned>(spec.collective) << 4 | static_cast<unsigned>(spec.op)));
  if ((flags & kHasProcessSet) != 0) writer.put(spec.process_set);
  if ((flags & kHasRoot) != 0) writer.put(spec.root);
  if ((flags & kHasScales) != 0) {
    writer.put(spec.prescale);
    writer.put(spec.postscale);
  }
  if ((flags & kHasDevice) != 0) writer.put(spec.device);
  if ((flags & kHasPriority) != 0) writer.put(spec.priority);
  if ((flags & kHasTensorCount) != 0) writer.put(static_cast<std::uint32_t>(spec.tensors.size()));
  for (const TensorSpec& tensor : spec.tensors) {
    if (tensor.shape.size() > kMaxDimensions) throw InvalidArgument("a tensor has too many dimensions");
    writer.put(static_cast<std::uint8_t>(tensor.dtype));
    writer.put(static_cast<std::uint8_t>(tensor.shape.size()));
    for (const std::int64_t dimension : tensor.shape) writer.put_varint(static_cast<std::uint64_t>(dimension));
  }
  if ((flags & kHasSplits) != 0) put_list(writer, spec.splits);
}

void put_ranks(ByteWriter& writer, const RankSet& ranks) {
  writer.put(static_cast<std::uint32_t>(ranks.ranges().size()));
  for (const RankSet::Range& range : ranks.ranges()) {
    writer.put(range.begin);
    writer.put(range.end);
  }
}

void put_shared_request(ByteWriter& writer, const SharedRequest& shared, std::string_view before) {
  put_spec(writer, shared.spec, before);
  writer.put_varint(shared.parts.size());
  for (const RankPart& part : shared.parts) {
    put_list(writer, part.first_dimensions);
    put_list(writer, part.splits);
  }
}

void put_rank_message(ByteWriter& writer, const RankMessage& message) {
  put_ranks(writer, message.ranks);
  writer.put(message.applied);
  writer.put(message.latest);
  writer.put(static_cast<std::uint8_t>(message.shut_down));
  put_hits(writer, message.hits);
  writer.put(static_cast<std::uint32_t>(message.requests.size()));
  std::string_view before;
  for (const SharedRequest& shared : message.requests) {
    put_shared_request(writer, shared, before);
    before = shared.spec.name;
  }
}

std::uint8_t flags_of(const Response& response) {
  unsigned flags = 0;
  if (response.slot != kNoSlot) flags |= kHasSlot;
  if (response.contributing != 0) flags |= kHasContributing;
  if (!response.rows.empty()) flags |= kHasRows;
  if (!response.status.ok() || !response.status.message().empty()) flags |= kHasStatus;
  if (!response.ranks.empty()) flags |= kHasRanks;
  if (response.rank != -1) flags |= kHasRank;
  if (!response.schedule.empty()) flags |= kHasSchedule;
  return static_cast<std::uint8_t>(flags);
}

void put_lists(ByteWriter& writer, const auto& lists) {
  writer.put(static_cast<std::uint32_t>(lists.size()));
  for (const auto& list : lists) put_list(writer, list);
}

void put_response(ByteWriter& writer, const Response& response, std::string_view before) {
  const std::uint8_t flags = flags_of(response);
  writer.put(static_cast<std::uint8_t>(response.kind));
  writer.put(flags);
  put_spec(writer, response.spec, before);
  if ((flags & kHasSlot) != 0) writer.put_varint(response.slot);
  if ((flags & kHasContributing) != 0) writer.put_varint(static_cast<std::uint32_t>(response.contributing));
  if ((flags & kHasRows) != 0) put_lists(writer, response.rows);
  if ((flags & kHasStatus) != 0) {
    writer.put(static_cast<std::uint8_t>(response.status.code()));
    put_text(writer, response.status.message());
  }
  if ((flags & kHasRanks) != 0) put_list(writer, response.ranks);
  if ((flags & kHasRank) != 0) writer.put(response.rank);
  if ((flags & kHasSchedule) != 0) put_lists(writer, response.schedule);
}

// ---- Reading

template <typename Enum>
Enum checked_enum(unsigned value, Enum last, const char* what) {
  if (value > static_cast<unsigned>(last)) malformed(std::string("unknown ") + what + " " + std::to_string(value));
  return static_cast<Enum>(value);
}

bool get_flag(ByteReader& reader) {
  const auto value = reader.get<std::uint8_t>();
  if (value > 1) malformed("a boolean that is neither 0 nor 1");
  return value == 1;
}

template <typename Enum>
Enum get_enum(ByteReader& reader, Enum last, const char* what) {
  return checked_enum(reader.get<std::uint8_t>(), last, what);
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

std::uint8_t get_flags(ByteReader& reader, std::uint8_t known) {
  const auto flags = reader.get<std::uint8_t>();
  if ((flags & ~known) != 0) malformed("unknown flags");
  return flags;
}

std::uint32_t get_small(ByteReader& reader, const char* what) {
  const std::uint64_t value = reader.get_varint();
  if (value > 0xffffffffu) malformed(std::string(what) + " " + std::to_string(value));
  return static_cast<std::uint32_t>(value);
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

// A dimension of 0 is left out of the product, so that no order of multiplication and no part of the shape overflows.
void check_bytes(const TensorSpec& tensor) {
  auto bytes = static_cast<std::int64_t>(size_of(tensor.dtype));
  for (const std::int64_t dimension : tensor.shape) {
    if (__builtin_mul_overflow(bytes, std::max<std::int64_t>(dimension, 1), &bytes)) {
      malformed("a tensor of more than 2^63 bytes");
    }
  }
}

TensorSpec get_tensor(ByteReader& reader) {
  TensorSpec tensor;
  tensor.dtype = get_enum(reader, static_cast<DType>(kDTypeCount - 1), "dtype");
  const auto dimensions = reader.get<std::uint8_t>();
  if (dimensions > kMaxDimensions) malformed("a tensor of " + std::to_string(dimensions) + " dimensions");
  tensor.shape.reserve(dimensions);
  for (int i = 0; i < dimensions; ++i) {
    const auto dimension = static_cast<std::int64_t>(reader.get_varint());
    if (dimension < 0) malformed("dimension " + std::to_string(dimension));
    tensor.shape.push_back(dimension);
  }
  check_bytes(tensor);
  return tensor;
}

// Expands the prefix that it shares with the name before.
std::string get_name(ByteReader& reader, std::string_view before) {
  const std::size_t shared = reader.get<std::uint8_t>();
  const std::uint64_t size = reader.get_varint();
  if (shared > before.size() || size > kMaxNameBytes - shared) malformed("a name of too many bytes");
  std::string name(before.substr(0, shared));
  name += reader.get_text(size);
  if (shared_bytes(name, before) != shared) malformed("a non-canonical name");
  return name;
}

OperationSpec get_spec(ByteReader& reader, std::string_view before) {
  OperationSpec spec;
  const std::uint8_t flags = get_flags(reader, kAllSpecFlags);
  spec.name = get_name(reader, before);
  const auto kind = reader.get<std::uint8_t>();
  spec.collective = checked_enum(kind >> 4, Collective::join, "collective");
  spec.op = checked_enum(kind & 15, ReduceOp::product, "reduce op");
  if ((flags & kHasProcessSet) != 0) spec.process_set = reader.get<std::int32_t>();
  if (spec.process_set < 0) malformed("process set " + std::to_string(spec.process_set));
  if ((flags & kHasRoot) != 0) spec.root = reader.get<std::int32_t>();
  if ((flags & kHasScales) != 0) {
    spec.prescale = reader.get<double>();
    spec.postscale = reader.get<double>();
  }
  if ((flags & kHasDevice) != 0) spec.device = reader.get<std::int32_t>();
  if ((flags & kHasPriority) != 0) spec.priority = reader.get<std::int32_t>();
  const std::uint32_t tensors = (flags & kHasTensorCount) != 0 ? reader.get_count(kMinTensorBytes) : 1;
  spec.tensors.reserve(tensors);
  for (std::uint32_t i = 0; i < tensors; ++i) spec.tensors.push_back(get_tensor(reader));
  if ((flags & kHasSplits) != 0) spec.splits = get_row_counts(reader, "split");
  if (flags_of(spec) != flags) malformed("a non-canonical request");
  return spec;
}

// Ascending, with gaps between the ranges.
RankSet get_ranks(ByteReader& reader) {
  RankSet ranks;
  const std::uint32_t ranges = reader.get_count(2 * sizeof(std::int32_t));
  int last = -1;
  for (std::uint32_t i = 0; i < ranges; ++i) {
    const auto begin = reader.get<std::int32_t>();
    const auto end = reader.get<std::int32_t>();
    if (begin <= last || end <= begin || end > kMaxRanks) malformed("ranks out of order");
    ranks.add(RankSet(begin, end));
    last = end;
  }
  if (ranks.empty()) malformed("a message of no rank");
  return ranks;
}

// Checks what a request of these ranks must have to be split by rank.
SharedRequest get_shared_request(ByteReader& reader, const RankSet& ranks, std::string_view before) {
  SharedRequest shared(get_spec(reader, before));
  const OperationSpec& spec = shared.spec;
  const std::uint64_t parts = reader.get_varint();
  if (parts > reader.remaining() / kMinPartBytes) malformed("a list longer than the message");
  const bool needed = differs_by_rank(spec.collective) && ranks.count() > 1;
  if (parts != (needed ? static_cast<std::uint64_t>(ranks.count()) : 0)) malformed("wrong number of parts");
  shared.parts.resize(parts);
  for (RankPart& part : shared.parts) {
    part.first_dimensions = get_row_counts(reader, "dimension");
    part.splits = get_row_counts(reader, "split");
    if (part.first_dimensions.size() != spec.tensors.size()) malformed("wrong number of dimensions");
  }
  for (std::size_t i = 0; needed && i < spec.tensors.size(); ++i) {
    TensorSpec tensor = spec.tensors[i];
    if (tensor.shape.empty()) malformed("a tensor without dimensions");
    for (const RankPart& part : shared.parts) {
      tensor.shape.front() = part.first_dimensions[i];
      check_bytes(tensor);
    }
  }
  return shared;
}

// `left`: how many requests the message may still have.
RankMessage get_rank_message(ByteReader& reader, std::uint32_t& left) {
  RankMessage message;
  message.ranks = get_ranks(reader);
  message.applied = reader.get<std::uint64_t>();
  message.latest = reader.get<std::uint64_t>();
  message.shut_down = get_flag(reader);
  message.hits = get_hits(reader);
  const std::uint32_t requests = reader.get_count(kMinRequestBytes);
  if (requests > left) malformed("too many requests");
  left -= requests;
  std::string_view before;
  message.requests.reserve(requests);
  for (std::uint32_t i = 0; i < requests; ++i) {
    message.requests.push_back(get_shared_request(reader, message.ranks, before));
    before = message.requests.back().spec.name;
  }
  return message;
}

// Checks what an execute response must have, so that its parts can be indexed when it is performed.
void check_execute(const Response& response) {
  const OperationSpec& spec = response.spec;
  const std::size_t tensors = spec.tensors.size();
  const auto& rows = response.rows;
  if (spec.collective == Collective::join) malformed("a join to be executed");
  if (response.contributing == 0) malformed("an operation that no rank has asked for");
  if ((spec.collective == Collective::barrier) != (tensors == 0)) malformed("wrong number of tensors");
  const bool by_rank = differs_by_rank(spec.collective);
  if (by_rank || spec.collective == Collective::reducescatter) {
    for (const TensorSpec& tensor : spec.tensors) {
      if (tensor.shape.empty()) malformed("a tensor without dimensions");
    }
  }
  const bool alltoall = spec.collective == Collective::alltoall;
  if (alltoall && tensors != 1) malformed("an alltoall of " + std::to_string(tensors) + " tensors");
  if (rows.size() != (alltoall ? spec.splits.size() : by_rank ? tensors : 0)) malformed("wrong number of row lists");
  for (const auto& list : rows) {
    if (list.size() != (alltoall ? rows.size() : rows.front().size())) malformed("row lists of different lengths");
    if (static_cast<std::size_t>(response.contributing) > list.size()) malformed("more contributing ranks than rows");
  }
  if (const std::string overflow = find_overflow(response); !overflow.empty()) malformed(overflow);
}

// Every slot at most once, in groups of at least one.
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

std::int32_t get_rank(ByteReader& reader) {
  const auto rank = reader.get<std::int32_t>();
  if (rank < 0 || rank >= kMaxRanks) malformed("rank " + std::to_string(rank));
  return rank;
}

// Ascending.
std::vector<std::int32_t> get_failed_ranks(ByteReader& reader) {
  std::vector<std::int32_t> ranks(reader.get_count(sizeof(std::int32_t)));
  std::int32_t last = -1;
  for (std::int32_t& rank : ranks) {
    rank = get_rank(reader);
    if (rank <= last) malformed("ranks out of order");
    last = rank;
  }
  return ranks;
}

Response get_response(ByteReader& reader, std::string_view before) {
  Response response;
  response.kind = get_enum(reader, Response::Kind::lock, "kind of response");
  const std::uint8_t flags = get_flags(reader, kAllResponseFlags);
  response.spec = get_spec(reader, before);
  if ((flags & kHasSlot) != 0) response.slot = get_small(reader, "cache slot");
  if (response.slot >= kMaxCacheSlots && response.slot != kNoSlot) malformed("cache slot");
  if ((flags & kHasContributing) != 0) {
    response.contributing = static_cast<std::int32_t>(get_small(reader, "contributing ranks"));
  }
  if (response.contributing < 0) malformed(std::to_string(response.contributing) + " contributing ranks");
  const std::uint32_t lists = (flags & kHasRows) != 0 ? reader.get_count(sizeof(std::uint32_t)) : 0;
  for (std::uint32_t i = 0; i < lists; ++i) response.rows.push_back(get_row_counts(reader, "row count"));
  if ((flags & kHasStatus) != 0) {
    const auto code = get_enum(reader, StatusCode::internal, "status code");
    response.status = Status(code, get_limited(reader, kMaxTextBytes, "a status text"));
  }
  if ((flags & kHasRanks) != 0) response.ranks = get_failed_ranks(reader);
  if ((flags & kHasRank) != 0) response.rank = get_rank(reader);
  if ((flags & kHasSchedule) != 0) response.schedule = get_schedule(reader);
  if (flags_of(response) != flags) malformed("a non-canonical response");
  if ((response.kind == Response::Kind::lock) != !response.schedule.empty()) {
    malformed(response.schedule.empty() ? "a lock without a schedule" : "a schedule in a response that is no lock");
  }
  if (response.kind == Response::Kind::execute) check_execute(response);
  if (response.kind == Response::Kind::error && response.status.ok()) malformed("an error without a status");
  if (response.kind == Response::Kind::all_joined && response.rank < 0) malformed("a join that no rank has completed");
  return response;
}

ResponseList::Entry get_entry(ByteReader& reader, std::string_view before) {
  const auto kind = reader.get<std::uint8_t>();
  if (kind == kCachedEntry) return {.cached_slot = get_slot(reader), .response = std::nullopt};
  if (kind != kResponseEntry) malformed("unknown entry " + std::to_string(kind));
  return {.cached_slot = kNoSlot, .response = get_response(reader, before)};
}

void expect_kind(ByteReader& reader, std::uint8_t kind) {
  if (reader.get<std::uint8_t>() != kind) malformed("unexpected message kind");
}

}  // namespace

Bytes encode(const SubtreeMessage& message) {
  ByteWriter writer;
  writer.put(kSubtreeMessage);
  writer.put(message.applied_by_all);
  writer.put(static_cast<std::uint32_t>(message.messages.size()));
  for (const RankMessage& part : message.messages) put_rank_message(writer, part);
  return writer.take();
}

SubtreeMessage decode_subtree_message(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  expect_kind(reader, kSubtreeMessage);
  SubtreeMessage message;
  message.applied_by_all = reader.get<std::uint64_t>();
  const std::uint32_t count = reader.get_count(kMinRankMessageBytes);
  message.messages.reserve(count);
  std::uint32_t left = kMaxRequests;
  for (std::uint32_t i = 0; i < count; ++i) message.messages.push_back(get_rank_message(reader, left));
  reader.expect_end();
  return message;
}

std::optional<OpaqueMessage> peek(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  expect_kind(reader, kSubtreeMessage);
  OpaqueMessage message;
  message.applied_by_all = reader.get<std::uint64_t>();
  if (reader.get<std::uint32_t>() != 1) return std::nullopt;
  message.ranks = get_ranks(reader);
  message.applied = reader.get<std::uint64_t>();
  message.latest = reader.get<std::uint64_t>();
  if (reader.get<std::uint8_t>() != 0) return std::nullopt;
  message.body = reader.rest();
  return message;
}

Bytes encode(const OpaqueMessage& message) {
  ByteWriter writer;
  writer.put(kSubtreeMessage);
  writer.put(message.applied_by_all);
  writer.put(std::uint32_t{1});
  put_ranks(writer, message.ranks);
  writer.put(message.applied);
  writer.put(message.latest);
  writer.put(std::uint8_t{0});
  writer.put_bytes(message.body);
  return writer.take();
}

std::size_t row_bytes(const Response& response) {
  std::size_t bytes = 0;
  for (const auto& list : response.rows) bytes += sizeof(std::uint32_t) + list.size() * sizeof(std::int64_t);
  return bytes;
}

Bytes encode(const ResponseList& message) {
  if (message.entries.size() > kMaxEntries) throw InvalidArgument("a message of too many responses");
  ByteWriter writer;
  writer.put(kResponseList);
  writer.put(message.number);
  writer.put(static_cast<std::uint32_t>(message.entries.size()));
  std::string_view before;
  for (const ResponseList::Entry& entry : message.entries) {
    writer.put(entry.response ? kResponseEntry : kCachedEntry);
    if (entry.response) {
      put_response(writer, *entry.response, before);
      before = entry.response->spec.name;
    } else if (entry.cached_slot < kMaxCacheSlots) {
      writer.put(entry.cached_slot);
    } else {
      throw InvalidArgument("cache slot " + std::to_string(entry.cached_slot) + " is beyond the limit");
    }
  }
  writer.put(static_cast<std::uint8_t>(message.knobs.has_value()));
  if (message.knobs) {
    for (const auto knob : kKnobs) writer.put((*message.knobs).*knob);
  }
  writer.put(static_cast<std::uint32_t>(message.warnings.size()));
  for (const std::string& warning : message.warnings) put_text(writer, warning);
  return writer.take();
}

ResponseList decode_response_list(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  expect_kind(reader, kResponseList);
  ResponseList message;
  message.number = reader.get<std::uint64_t>();
  const std::uint32_t entries = reader.get_count(kMinEntryBytes);
  if (entries > kMaxEntries) malformed(std::to_string(entries) + " entries");
  message.entries.reserve(entries);
  std::string_view before;
  for (std::uint32_t i = 0; i < entries; ++i) {
    message.entries.push_back(get_entry(reader, before));
    if (message.entries.back().response) before = message.entries.back().response->spec.name;
  }
  if (get_flag(reader)) {
    message.knobs.emplace();
    for (const auto knob : kKnobs) (*message.knobs).*knob = get_non_negative(reader, "knob");
  }
  const std::uint32_t warnings = reader.get_count(sizeof(std::uint32_t));
  for (std::uint32_t i = 0; i < warnings; ++i) {
    message.warnings.push_back(get_limited(reader, kMaxTextBytes, "a warning"));
  }
  reader.expect_end();
  return message;
}

}  // namespace hvd
