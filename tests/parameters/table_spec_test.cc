// A table's spec as bytes, and what is checked of it.
#include "parameters/table_spec.h"

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "tests/support/catch.h"

namespace hvd {
namespace {

constexpr std::uint32_t kManyShards = 1u << 12;

TableSpec unusual_table() {
  return {.name = "unusual",
          .dense = true,
          .rows = 77,
          .width = 5,
          .optimizer = {.rule = UpdateRule::adam,
                        .row_wise = true,
                        .nesterov = true,
                        .learning_rate = 1,
                        .momentum = 2,
                        .weight_decay = 3,
                        .beta1 = 0.25f,
                        .beta2 = 0.5f,
                        .epsilon = 6,
                        .accumulator = 7,
                        .beta = 8,
                        .l1 = 9,
                        .l2 = 10},
          .initializer = {.kind = InitializerSpec::Kind::normal, .a = 11, .b = 12, .seed = 13},
          .consistency = Consistency::synchronous,
          .bound = 14,
          .average = true};
}

TableSpec custom_table() {
  TableSpec spec{.name = "custom", .rows = 3, .max_age = 4};
  spec.optimizer = {.rule = UpdateRule::custom, .function = "mine", .state = 5};
  return spec;
}

TableSpec compensated_table() { return {.name = "late", .dense = true, .rows = 3, .compensation = 0.5f}; }

Bytes spec_bytes(const TableSpec& spec) {
  ByteWriter writer;
  writer.put(spec);
  return writer.take();
}

TEST_CASE("a table's spec survives as bytes, and no shorter ones are taken for one") {
  for (const TableSpec& spec : {unusual_table(), custom_table(), compensated_table(), TableSpec{.name = "plain"}}) {
    const Bytes bytes = spec_bytes(spec);
    ByteReader reader(bytes);
    CHECK(read_table_spec(reader) == spec);
    CHECK(reader.remaining() == 0);
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      ByteReader cut(std::span<const std::byte>(bytes).first(size));
      CHECK_THROWS_AS(read_table_spec(cut), Internal);
    }
  }
}

TEST_CASE("bytes that no writer has written are refused") {
  // Of the field behind the name: dense u8, rows u64, max_age u32, width u32, rule u8, flags u8, ten float32, a text,
  // u32.
  const std::size_t name = 4 + 7;
  const std::size_t kind = name + 1 + 8 + 4 + 4 + 2 + 10 * 4 + 4 + 4, consistency = kind + 1 + 4 + 4 + 8;
  struct Case {
    std::size_t at;
    int value;
  };
  for (const auto& [at, value] : std::vector<Case>{{name, 2},
                                                   {name + 17, kUpdateRules},
                                                   {name + 18, 4},
                                                   {kind, 3},
                                                   {consistency, 3},
                                                   {consistency + 9, 0x80},
                                                   {name - 11, 0xff},
                                                   {name - 8, 0xff}}) {
    Bytes bytes = spec_bytes(unusual_table());
    REQUIRE(at < bytes.size());
    bytes[at] = static_cast<std::byte>(value);
    ByteReader reader(bytes);
    INFO("byte " << at);
    CHECK_THROWS_AS(read_table_spec(reader), Internal);
  }
}

TEST_CASE("specs that mean nothing are refused, and the text says why") {
  struct Case {
    std::function<void(TableSpec&)> change;
    const char* text;
  };
  const float nan = std::nanf(""), infinite = std::numeric_limits<float>::infinity();
  const std::vector<Case> cases = {
      {[](TableSpec& s) { s.name.clear(); }, "a name has"},
      {[](TableSpec& s) { s.name.assign(257, 'x'); }, "a name has"},
      {[](TableSpec& s) { s.width = 0; }, "1 to 65536 values"},
      {[](TableSpec& s) { s.width = kMaxWidth + 1; }, "1 to 65536 values"},
      {[](TableSpec& s) { s.dense = true; }, "1 to 2^40 rows"},
      {[](TableSpec& s) { s.dense = true, s.rows = kMaxDenseRows + 1; }, "1 to 2^40 rows"},
      {[=](TableSpec& s) { s.optimizer.learning_rate = nan; }, "finite"},
      {[=](TableSpec& s) { s.optimizer.momentum = nan; }, "finite"},
      {[=](TableSpec& s) { s.optimizer.weight_decay = infinite; }, "finite"},
      {[=](TableSpec& s) { s.optimizer.beta1 = nan; }, "finite"},
      {[=](TableSpec& s) { s.optimizer.beta2 = nan; }, "finite"},
      {[=](TableSpec& s) { s.optimizer.epsilon = nan; }, "finite"},
      {[=](TableSpec& s) { s.optimizer.accumulator = infinite; }, "finite"},
      {[=](TableSpec& s) { s.optimizer.beta = nan; }, "finite"},
      {[=](TableSpec& s) { s.optimizer.l1 = nan; }, "finite"},
      {[=](TableSpec& s) { s.optimizer.l2 = nan; }, "finite"},
      {[=](TableSpec& s) { s.initializer.a = nan; }, "finite"},
      {[=](TableSpec& s) { s.initializer.b = -infinite; }, "finite"},
      {[](TableSpec& s) { s.optimizer.learning_rate = -1; }, "learning rate"},
      {[](TableSpec& s) { s.optimizer.rule = UpdateRule::ftrl, s.optimizer.learning_rate = 0; }, "FTRL"},
      {[](TableSpec& s) { s.optimizer.row_wise = true; }, "row-wise"},
      {[](TableSpec& s) { s.optimizer.nesterov = true; }, "Nesterov"},
      {[](TableSpec& s) { s.optimizer.beta1 = 1; }, "betas"},
      {[](TableSpec& s) { s.optimizer.beta1 = -0.1f; }, "betas"},
      {[](TableSpec& s) { s.optimizer.beta2 = 1; }, "betas"},
      {[](TableSpec& s) { s.optimizer.beta2 = -0.1f; }, "betas"},
      {[](TableSpec& s) { s.optimizer.accumulator = -1; }, "must not be negative"},
      {[](TableSpec& s) { s.optimizer.epsilon = -1; }, "must not be negative"},
      {[](TableSpec& s) { s.optimizer.beta = -1; }, "must not be negative"},
      {[](TableSpec& s) { s.optimizer.l1 = -1; }, "must not be negative"},
      {[](TableSpec& s) { s.optimizer.l2 = -1; }, "must not be negative"},
      {[](TableSpec& s) { s.initializer = {.kind = InitializerSpec::Kind::normal, .b = -1}; }, "standard deviation"},
      {[](TableSpec& s) { s.consistency = Consistency::synchronous, s.rows = 5; }, "synchronous"},
      {[](TableSpec& s) { s.consistency = Consistency::synchronous, s.max_age = 5; }, "synchronous"},
      {[](TableSpec& s) { s.dense = true, s.rows = 5, s.max_age = 5; }, "no limit of age"},
      {[=](TableSpec& s) { s.compensation = nan; }, "finite"},
      {[](TableSpec& s) { s.dense = true, s.rows = 5, s.compensation = -1; }, "must not be negative"},
      {[](TableSpec& s) { s.compensation = 1; }, "delay compensation is for dense tables"},
      {[](TableSpec& s) {
         s = compensated_table();
         s.consistency = Consistency::synchronous;
       },
       "that are not synchronous"},
      {[](TableSpec& s) {
         s = compensated_table();
         s.optimizer.rule = UpdateRule::add;
       },
       "has a learning rate"},
      {[](TableSpec& s) { s.optimizer.rule = UpdateRule::custom; }, "has a name"},
      {[](TableSpec& s) { s.optimizer.function = "mine"; }, "has a name"},
      {[](TableSpec& s) { s.optimizer.state = 1; }, "how much state"},
      {[](TableSpec& s) { s.optimizer = {.rule = UpdateRule::custom, .function = "f", .state = kMaxCustomState + 1}; },
       "262144"},
  };
  for (const auto& [change, text] : cases) {
    TableSpec spec{.name = "table"};
    REQUIRE_NOTHROW(check_table_spec(spec));
    change(spec);
    std::string why;
    try {
      check_table_spec(spec);
    } catch (const InvalidArgument& error) {
      why = error.what();
    }
    INFO("for '" << text << "': " << why);
    CHECK(why.find(text) != std::string::npos);
    const Bytes bytes = spec_bytes(spec);
    ByteReader reader(bytes);
    CHECK_THROWS_AS(read_table_spec(reader), InvalidArgument);
  }
}

TEST_CASE("every row has one shard, and shards have about as many") {
  for (const std::uint32_t shards : {1u, 2u, 3u, 7u, kManyShards}) {
    const TableSpec dense{.name = "dense", .dense = true, .rows = 10'007};
    std::uint32_t last = 0;
    std::vector<int> of_dense(shards), of_sparse(shards);
    for (std::uint64_t key = 0; key < dense.rows; ++key) {
      const std::uint32_t shard = shard_of(dense, key, shards);
      REQUIRE((shard >= last && shard < shards));
      last = shard;
      ++of_dense[shard];
      const std::uint32_t hashed = shard_of({.name = "sparse"}, key << 13, shards);
      REQUIRE(hashed < shards);
      ++of_sparse[hashed];
    }
    const int share = static_cast<int>(dense.rows / shards);
    for (const int count : of_dense) REQUIRE((count == share || count == share + 1));
    if (shards > 7) continue;
    for (const int count : of_sparse) REQUIRE(std::abs(count - share) < share / 5 + 1);
  }
  const TableSpec largest{.name = "largest", .dense = true, .rows = kMaxDenseRows};
  CHECK(shard_of(largest, kMaxDenseRows - 1, kManyShards) == kManyShards - 1);
}

}  // namespace
}  // namespace hvd
