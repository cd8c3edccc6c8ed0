#include "core/control/protocol/wire.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <random>

#include "core/base/error.h"
#include "core/net/byte_codec.h"
#include "tests/core/control/specs.h"
#include "tests/support/catch.h"
#include "tests/support/sanitized.h"

using namespace hvd;

namespace {

OperationSpec rich_request() {
  OperationSpec spec = alltoall("layer.weight", {1, 0, 2});
  spec.process_set = 3;
  spec.op = ReduceOp::max;
  spec.root = 2;
  spec.prescale = 0.5;
  spec.postscale = -1e300;
  spec.device = 0;
  spec.priority = -7;
  spec.tensors.front().dtype = DType::bfloat16;
  return spec;
}

ResponseList rich_response_list() {
  Response execute{
      .spec = alltoall("a", {1, 2}), .slot = 7, .contributing = 2, .rows = {{1, 2}, {0, 0}}, .status = {}, .ranks = {}};
  Response gather{.spec = allgather("g", {2, 0, 5}),
                  .slot = kNoSlot,
                  .contributing = 2,
                  .rows = {{2, 4, 0}},
                  .status = {},
                  .ranks = {}};
  Response error{.kind = Response::Kind::error,
                 .spec = barrier("b"),
                 .rows = {},
                 .status = Status(StatusCode::mismatch, "no"),
                 .ranks = {0, 5}};
  Response left{.kind = Response::Kind::shut_down,
                .spec = {},
                .rows = {},
                .status = Status(StatusCode::shut_down, "gone"),
                .ranks = {},
                .rank = 4};
  ResponseList message;
  message.number = 0x123456789abcdef0;
  message.entries = {{3, std::nullopt}, {kNoSlot, execute}, {kNoSlot, gather}, {kNoSlot, error}, {kNoSlot, left}};
  message.warnings = {"", "stalled"};
  message.knobs = Knobs{.fusion_threshold_bytes = 1, .coalescing_us = 2, .chunk_bytes = 3};
  return message;
}

ResponseList message_of(Response response) {
  ResponseList message;
  message.number = 1;
  message.entries.push_back({kNoSlot, std::move(response)});
  return message;
}

SubtreeMessage message_of(OperationSpec spec) {
  RankMessage message;
  message.requests.emplace_back(std::move(spec));
  return sent_by(3, message);
}

}  // namespace

TEST_CASE("Rank messages survive the wire") {
  RankMessage message;
  SECTION("empty") {}
  SECTION("hits, at the edges of words and of the limit") {
    message.applied = 9;
    message.hits = {0, 1, 63, 64, 127, 1000, kMaxCacheSlots - 1};
  }
  SECTION("requests and shutting down") {
    message.requests = {rich_request(), join(), allreduce("", {}), allreduce(std::string(kMaxNameBytes, 'x'), {0, 7})};
    message.requests.push_back(allreduce("group"));
    message.requests.back().spec.tensors.push_back({DType::boolean, Shape(kMaxDimensions, 1)});
    message.shut_down = true;
  }
  const SubtreeMessage whole = sent_by(7, message);
  CHECK(decode_subtree_message(encode(whole)) == whole);
}

TEST_CASE("What many ranks say at once survives the wire") {
  RankSet ranks(2, 5);
  ranks.add(RankSet(kMaxRanks - 1));
  SharedRequest shared(alltoall("a", {1, 2}));
  shared.parts = {{{3}, {1, 2}}, {{0}, {0, 0}}, {{5}, {2, 3}}, {{1}, {0, 1}}};
  SubtreeMessage message{.applied_by_all = 4};
  message.messages.push_back({.ranks = ranks, .applied = 9, .latest = 7, .hits = {3}});
  message.messages.back().requests = {shared, SharedRequest(allreduce("x"))};
  message.messages.push_back({.ranks = RankSet(1), .applied = 8, .latest = 8, .shut_down = true});
  CHECK(decode_subtree_message(encode(message)) == message);
  Bytes bytes = encode(message);
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    CHECK_THROWS_AS(decode_subtree_message(std::span(bytes).first(length)), Internal);
  }
  message.messages.front().requests.front().parts.pop_back();
  CHECK_THROWS_WITH(decode_subtree_message(encode(message)), Catch::Matchers::Contains("wrong number of parts"));
  message.messages.front().requests.front().parts.push_back({{1, 2}, {0, 1}});
  CHECK_THROWS_WITH(decode_subtree_message(encode(message)), Catch::Matchers::Contains("wrong number of dimensions"));
  message.messages.front().requests.front().parts.back() = {{std::int64_t{1} << 61}, {0, 1}};
  CHECK_THROWS_WITH(decode_subtree_message(encode(message)), Catch::Matchers::Contains("2^63 bytes"));
  message.messages.front().ranks = RankSet();
  CHECK_THROWS_WITH(decode_subtree_message(encode(message)), Catch::Matchers::Contains("no rank"));
  message.messages.front().ranks = RankSet(0, kMaxRanks + 1);
  CHECK_THROWS_WITH(decode_subtree_message(encode(message)), Catch::Matchers::Contains("ranks out of order"));
}

TEST_CASE("A thousand hits take a bit each") {
  RankMessage message;
  for (std::uint32_t slot = 0; slot < 1000; ++slot) message.hits.push_back(slot);
  CHECK(encode(sent_by(0, message)).size() < 200);
}

TEST_CASE("A thousand gradients take few bytes each, as requests and as responses") {
  RankMessage message;
  ResponseList responses;
  for (int i = 0; i < 1000; ++i) {
    const OperationSpec spec = allreduce("transformer.layer." + std::to_string(i / 4) + ".attention." + "qkvo"[i % 4]);
    message.requests.emplace_back(spec);
    responses.entries.push_back(
        {kNoSlot, Response{.spec = spec, .slot = 1, .contributing = 9, .rows = {}, .status = {}, .ranks = {}}});
  }
  CHECK(decode_subtree_message(encode(sent_by(0, message))) == sent_by(0, message));
  CHECK(encode(sent_by(0, message)).size() < 14'000);
  CHECK(encode(responses).size() < 18'000);
}

TEST_CASE("There is one way to write a request") {
  const SubtreeMessage pair = [] {
    RankMessage message;
    message.requests = {allreduce("abc"), allreduce("abd")};
    return sent_by(0, message);
  }();
  const Bytes bytes = encode(pair);
  const std::size_t second = bytes.size() - 10;  // flags, shared, 1, 'd', kind, dtype, 2, 2, 3, no parts
  REQUIRE(bytes[second + 1] == std::byte{2});
  const auto changed = [&](std::size_t at, int value) {
    Bytes other = bytes;
    other[at] = static_cast<std::byte>(value);
    return other;
  };
  CHECK_THROWS_AS(decode_subtree_message(changed(second + 1, 4)), Internal);
  CHECK_THROWS_AS(decode_subtree_message(changed(second + 3, 'c')), Internal);
  CHECK_THROWS_AS(decode_subtree_message(changed(second, 64)), Internal);
  Bytes usual_root = changed(second, 2);
  usual_root.insert(usual_root.begin() + static_cast<std::ptrdiff_t>(second) + 5, 4, std::byte{0});
  CHECK_THROWS_AS(decode_subtree_message(usual_root), Internal);
  Bytes long_dimension = changed(bytes.size() - 2, 0x83);
  long_dimension.insert(long_dimension.end() - 1, std::byte{0});
  CHECK_THROWS_AS(decode_subtree_message(long_dimension), Internal);
}

TEST_CASE("The senders can be decoded without the body") {
  RankMessage message{.applied = 5};
  message.hits = {3};
  message.requests = {rich_request()};
  SubtreeMessage whole = sent_by(7, message);
  const Bytes bytes = encode(whole);
  auto opaque = peek(bytes);
  REQUIRE(opaque);
  CHECK(opaque->ranks == RankSet(7));
  CHECK(opaque->applied == 5);
  CHECK(encode(*opaque) == bytes);
  const Bytes other = encode(sent_by(8, message));
  CHECK(std::ranges::equal(opaque->body, peek(other)->body));
  whole.messages.push_back(whole.messages.front());
  CHECK_FALSE(peek(encode(whole)));
  message.shut_down = true;
  CHECK_FALSE(peek(encode(sent_by(7, message))));
  CHECK_THROWS_AS(peek(std::span(bytes).first(30)), Internal);
}

TEST_CASE("Coordinator messages survive the wire") {
  const ResponseList message = rich_response_list();
  CHECK(decode_response_list(encode(message)) == message);
  CHECK(decode_response_list(encode(ResponseList{})) == ResponseList{});
}

TEST_CASE("Texts are cut off, names and slots beyond the limit are refused when encoding") {
  ResponseList message;
  message.warnings = {std::string(kMaxTextBytes + 10, 'n')};
  CHECK(decode_response_list(encode(message)).warnings.front().size() == kMaxTextBytes);
  CHECK_THROWS_AS(encode(message_of(allreduce(std::string(kMaxNameBytes + 1, 'x')))), InvalidArgument);
  CHECK_THROWS_AS(encode(message_of(allreduce("x", Shape(kMaxDimensions + 1, 1)))), InvalidArgument);
  RankMessage hit;
  hit.hits = {kMaxCacheSlots};
  CHECK_THROWS_AS(encode(sent_by(0, hit)), InvalidArgument);
  message.entries = {{kMaxCacheSlots, std::nullopt}};
  CHECK_THROWS_AS(encode(message), InvalidArgument);
}

TEST_CASE("Negative knobs are refused") {
  ResponseList message;
  message.knobs = Knobs{.chunk_bytes = -1};
  CHECK_THROWS_WITH(decode_response_list(encode(message)), Catch::Matchers::Contains("knob -1"));
}

TEST_CASE("Every truncation and every appended byte is refused") {
  SubtreeMessage subtree_message = message_of(rich_request());
  subtree_message.messages.front().hits = {5, 70};
  Bytes bytes = encode(subtree_message);
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    CHECK_THROWS_AS(decode_subtree_message(std::span(bytes).first(length)), Internal);
  }
  bytes.push_back(std::byte{0});
  CHECK_THROWS_AS(decode_subtree_message(bytes), Internal);

  bytes = encode(rich_response_list());
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    CHECK_THROWS_AS(decode_response_list(std::span(bytes).first(length)), Internal);
  }
  bytes.push_back(std::byte{0});
  CHECK_THROWS_AS(decode_response_list(bytes), Internal);
}

TEST_CASE("One kind of message is not taken for the other") {
  CHECK_THROWS_AS(decode_subtree_message(encode(ResponseList{})), Internal);
  CHECK_THROWS_AS(decode_response_list(encode(SubtreeMessage{})), Internal);
}

TEST_CASE("Requests with impossible values are refused") {
  const auto spoiled = [](auto change) {
    OperationSpec spec = alltoall("x", {1, 2});
    change(spec);
    return message_of(spec);
  };
  const std::vector<std::pair<const char*, SubtreeMessage>> cases = {
      {"process set", spoiled([](OperationSpec& r) { r.process_set = -1; })},
      {"collective", spoiled([](OperationSpec& r) { r.collective = static_cast<Collective>(7); })},
      {"reduce op", spoiled([](OperationSpec& r) { r.op = static_cast<ReduceOp>(6); })},
      {"dtype", spoiled([](OperationSpec& r) { r.tensors[0].dtype = static_cast<DType>(kDTypeCount); })},
      {"dimension", spoiled([](OperationSpec& r) { r.tensors[0].shape = {-1}; })},
      {"split", spoiled([](OperationSpec& r) { r.splits = {-1}; })},
      {"2^63 bytes", spoiled([](OperationSpec& r) { r.tensors[0].shape = {std::int64_t{1} << 61}; })},
      {"2^63 bytes", spoiled([](OperationSpec& r) {
         r.tensors[0].shape = {std::int64_t{1} << 40, std::int64_t{1} << 40};
       })},
      {"2^63 bytes", spoiled([](OperationSpec& r) {
         r.tensors[0].shape = {0, std::int64_t{1} << 40, std::int64_t{1} << 40};
       })},
  };
  for (const auto& [what, message] : cases) {
    CAPTURE(what);
    CHECK_THROWS_WITH(decode_subtree_message(encode(message)),
                      Catch::Matchers::Contains("malformed message") && Catch::Matchers::Contains(what));
  }
  CHECK_NOTHROW(decode_subtree_message(encode(spoiled([](OperationSpec& r) {
    r.tensors[0].shape = {0, std::int64_t{1} << 60};
  }))));
}

TEST_CASE("Responses that could not be carried out are refused") {
  const auto execute = [](OperationSpec spec, std::vector<std::vector<std::int64_t>> rows) {
    return Response{.spec = std::move(spec), .contributing = 1, .rows = std::move(rows), .status = {}, .ranks = {}};
  };
  OperationSpec pair = allgather("x", {2});
  pair.tensors.push_back(pair.tensors.front());
  OperationSpec two_alltoall = alltoall("x", {1});
  two_alltoall.tensors.push_back(two_alltoall.tensors.front());
  OperationSpec tensor_barrier = allreduce("x");
  tensor_barrier.collective = Collective::barrier;
  OperationSpec no_tensor = allreduce("x");
  no_tensor.tensors.clear();
  Response beyond = execute(allreduce("x"), {});
  beyond.slot = kMaxCacheSlots;
  const auto asked_by = [&](std::int32_t ranks, Response response) {
    response.contributing = ranks;
    return response;
  };
  const auto error_for = [](std::vector<std::int32_t> ranks) {
    return Response{.kind = Response::Kind::error,
                    .spec = {},
                    .rows = {},
                    .status = Status(StatusCode::mismatch, "no"),
                    .ranks = std::move(ranks)};
  };
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const std::vector<std::pair<const char*, Response>> bad = {
      {"join", execute(join(), {})},
      {"barrier with a tensor", execute(tensor_barrier, {})},
      {"allreduce without a tensor", execute(no_tensor, {})},
      {"rows for an allreduce", execute(allreduce("x"), {{1}})},
      {"allgather without rows", execute(allgather("x", {2}), {})},
      {"rows for one tensor of two", execute(pair, {{1, 2}})},
      {"row lists of two lengths", execute(pair, {{1, 2}, {1}})},
      {"negative rows", execute(allgather("x", {2}), {{-1}})},
      {"allgather of a scalar", execute(allgather("x", {}), {{1}})},
      {"reducescatter of a scalar", execute(reducescatter("x", {}), {})},
      {"alltoall that is not square", execute(alltoall("x", {1, 2}), {{1, 2}, {1}})},
      {"alltoall with a source missing", execute(alltoall("x", {1, 2}), {{1, 2}})},
      {"alltoall of two tensors", execute(two_alltoall, {{1}})},
      {"slot", beyond},
      {"asked for by nobody", asked_by(0, execute(allreduce("x"), {}))},
      {"asked for by fewer than nobody", asked_by(-1, execute(allreduce("x"), {}))},
      {"asked for by more ranks than there are rows", asked_by(3, execute(pair, {{1, 2}, {3, 0}}))},
      {"error with an ok status", {.kind = Response::Kind::error, .spec = {}, .rows = {}, .status = {}, .ranks = {}}},
      {"kind", {.kind = static_cast<Response::Kind>(4), .spec = {}, .rows = {}, .status = {}, .ranks = {}}},
      {"allgather of more rows than there are bytes", execute(allgather("x", {2}), {{kMost, 1}})},
      {"allgather of more bytes than there are", execute(allgather("x", {2, 4}), {{kMost / 16, kMost / 16}})},
      {"alltoall in which a rank gets too much", execute(alltoall("x", {1, 2}), {{kMost / 16, 0}, {1, 0}})},
      {"alltoall in which a rank sends too much", execute(alltoall("x", {1, 2}), {{kMost / 16, 1}, {0, 0}})},
      {"last joined",
       {.kind = Response::Kind::all_joined, .spec = {}, .rows = {}, .status = {}, .ranks = {}, .rank = -2}},
      {"nobody was the last to join",
       {.kind = Response::Kind::all_joined, .spec = {}, .rows = {}, .status = {}, .ranks = {}, .rank = -1}},
      {"ranks", error_for({-1})},
      {"ranks out of order", error_for({5, 0})},
      {"a rank twice", error_for({5, 5})},
      {"a rank beyond the limit", error_for({kMaxRanks})},
      {"status code",
       {.kind = Response::Kind::error,
        .spec = {},
        .rows = {},
        .status = Status(static_cast<StatusCode>(10), "x"),
        .ranks = {}}},
  };
  for (const auto& [what, response] : bad) {
    CAPTURE(what);
    CHECK_THROWS_WITH(decode_response_list(encode(message_of(response))),
                      Catch::Matchers::Contains("malformed message"));
  }
  CHECK_NOTHROW(decode_response_list(encode(message_of(execute(pair, {{1, 2}, {3, 0}})))));
  CHECK_NOTHROW(decode_response_list(encode(message_of(error_for({0, kMaxRanks - 1})))));
}

TEST_CASE("Counts beyond the message allocate nothing") {
  const auto up_to_hits = [] {
    ByteWriter writer;
    writer.put(std::uint8_t{1});   // the kind
    writer.put(std::uint64_t{0});  // applied by all
    writer.put(std::uint32_t{1});  // messages
    writer.put(std::uint32_t{1});  // ranges
    writer.put(std::int32_t{0});
    writer.put(std::int32_t{1});
    writer.put(std::uint64_t{0});  // applied
    writer.put(std::uint64_t{0});  // latest
    writer.put(std::uint8_t{0});   // shuts down
    return writer;
  };
  ByteWriter hits = up_to_hits();
  hits.put(std::uint32_t{0xffffffff});
  CHECK_THROWS_WITH(decode_subtree_message(hits.take()), Catch::Matchers::Contains("longer than the message"));

  ByteWriter beyond = up_to_hits();
  const std::uint32_t words = kMaxCacheSlots / 64 + 1;
  beyond.put(words);
  for (std::uint32_t i = 0; i < words; ++i) beyond.put(std::uint64_t{1});
  beyond.put(std::uint32_t{0});
  CHECK_THROWS_WITH(decode_subtree_message(beyond.take()), Catch::Matchers::Contains("words of cache slots"));
}

TEST_CASE("A message of too many entries is refused on both sides") {
  ResponseList message;
  message.entries.resize(kMaxEntries + 1, {0, std::nullopt});
  CHECK_THROWS_AS(encode(message), InvalidArgument);
  message.entries.pop_back();
  Bytes bytes = encode(message);
  const std::uint32_t count = kMaxEntries + 1;
  std::memcpy(bytes.data() + 9, &count, sizeof count);
  bytes.insert(bytes.end() - 4, 5, std::byte{0});
  CHECK_THROWS_WITH(decode_response_list(bytes), Catch::Matchers::Contains("1048577 entries"));
}

TEST_CASE("Any changed byte is either refused or decodes to something that encodes again") {
  std::mt19937 random(7);
  const Bytes original = encode(rich_response_list());
  for (int i = 0; i < (hvd::testing::kSanitized ? 4000 : 20000); ++i) {
    Bytes bytes = original;
    for (int k = 0; k < 2; ++k) bytes[random() % bytes.size()] = static_cast<std::byte>(random());
    try {
      const ResponseList message = decode_response_list(bytes);
      REQUIRE(encode(message) == bytes);
    } catch (const Internal&) {
    }
  }
}
