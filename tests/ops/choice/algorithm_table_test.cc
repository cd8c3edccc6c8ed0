#include "ops/choice/algorithm_table.h"

#include <string>

#include "tests/support/catch.h"
#include "tests/support/link_costs.h"

using namespace hvd;
using namespace hvd::testing;
using enum AllreduceAlgorithm;

namespace {

AlgorithmTable table_of(const SelectionInput& facts, int ranks, int widening = 1) { return {facts, ranks, widening}; }

// "one_shot direct ring"
std::string order(const AlgorithmTable& table) {
  std::string names;
  for (const auto& range : table.ranges())
    names += (names.empty() ? "" : " ") + std::string(algorithm_name(range.algorithm));
  return names;
}

AlgorithmOverride override_of(const char* text) { return parse_algorithm_override(text, false); }

std::int64_t bucket_with(double latency_factor, int ranks) {
  LinkCosts costs = kTenGigabit;
  costs.latency *= latency_factor;
  AllreduceChoice choice({.costs = costs});
  return bucket_bytes(choice, ranks);
}

}  // namespace

TEST_CASE("a table covers all sizes, each once, and lookup finds the range") {
  for (const bool deterministic : {true, false}) {
    for (const int ranks : {1, 2, 3, 4, 7, 16, 100, 1000}) {
      for (const char* text : {"", "allreduce:0-1=ring", "allreduce:100-1000=direct;1m-=one_shot"}) {
        CAPTURE(deterministic, ranks, text);
        const auto table = table_of({kTenGigabit, deterministic, override_of(text)}, ranks);
        std::size_t next = 0;
        for (const auto& range : table.ranges()) {
          REQUIRE(range.from == next);
          REQUIRE(range.from < range.to);
          CHECK(table.lookup(range.from) == range.algorithm);
          CHECK(table.lookup(range.to - 1) == range.algorithm);
          CHECK_FALSE(range.reason.empty());
          next = range.to;
        }
        CHECK(next == kNoLimit);
        CHECK(table.lookup(kNoLimit) == table.ranges().back().algorithm);
      }
    }
  }
}

TEST_CASE("short messages take few latencies, long ones few bytes") {
  CHECK(order(table_of({kTenGigabit}, 4)) == "one_shot direct ring");
  CHECK(order(table_of({kTenGigabit}, 16)) == "one_shot direct ring");
  const auto table = table_of({kTenGigabit}, 16);
  CHECK(table.lookup(8) == one_shot);
  CHECK(table.lookup(256 << 10) == direct);
  CHECK(table.lookup(64 << 20) == ring);
  const auto many = table_of({kTenGigabit, false}, 64);
  CHECK(many.lookup(8) == bruck);
  CHECK(many.lookup(64 << 10) == halving_doubling);
  CHECK(many.lookup(1 << 30) == ring);
}

TEST_CASE(
    "where results must not depend on the algorithm, halving and doubling serves nothing, and the table says so") {
  for (const int ranks : {2, 3, 8, 64, 1000}) {
    const auto table = table_of({kTenGigabit, true}, ranks);
    for (const auto& range : table.ranges()) CHECK(range.algorithm != halving_doubling);
    CHECK(table.text().find("nothing by halving_doubling: ") != std::string::npos);
    CHECK(table.text().find("HVD_DETERMINISTIC=1") != std::string::npos);
  }
  CHECK(table_of({kTenGigabit, false}, 64).text().find("nothing by") == std::string::npos);
}

TEST_CASE("between two ranks, where two algorithms send the same messages, rounding does not choose") {
  for (const double factor : {1.0, 1.1, 1.3, 1.7, 2.3}) {
    CAPTURE(factor);
    const LinkCosts costs{
        .latency = 27e-6 * factor, .per_byte = factor / 1.2e9, .per_message = 22e-6, .reduce_per_byte = 1 / 2.3e9};
    CHECK(order(table_of({costs}, 2)).find("bruck") == std::string::npos);
  }
}

TEST_CASE("what the user wants goes before what the model finds") {
  const auto plain = table_of({kTenGigabit}, 16);
  const auto table = table_of({kTenGigabit, true, override_of("allreduce:100-5000=ring;1m-=direct")}, 16);
  CHECK(table.lookup(99) == plain.lookup(99));
  CHECK(table.lookup(100) == ring);
  CHECK(table.lookup(4999) == ring);
  CHECK(table.lookup(5000) == plain.lookup(5000));
  CHECK(table.lookup((1 << 20) - 1) == plain.lookup((1 << 20) - 1));
  CHECK(table.lookup(1 << 20) == direct);
  CHECK(table.lookup(std::size_t{1} << 40) == direct);
  int said = 0;
  for (const auto& range : table.ranges()) said += range.reason == "HVD_ALGORITHM says so" ? 1 : 0;
  CHECK(said == 2);
}

TEST_CASE("reasons give the time and the next best") {
  const auto table = table_of({kTenGigabit}, 4);
  CHECK(table.ranges().front().reason == "least time by the cost model: 24 us at 128, against 40 us of bruck");
  CHECK(table.ranges().back().reason.find(", against ") != std::string::npos);
  CHECK(table_of({kTenGigabit}, 1).ranges().front().reason == "one rank: nothing is sent");
}

TEST_CASE("the text has a line for each range") {
  const auto table = table_of({kTenGigabit, true, override_of("allreduce:0-64k=direct;64k-=ring")}, 4);
  CHECK(table.text() ==
        "  0-64k  direct  HVD_ALGORITHM says so\n"
        "  64k-   ring    HVD_ALGORITHM says so\n"
        "  nothing by halving_doubling: it does not add in the order of the others (HVD_DETERMINISTIC=1)\n");
}

TEST_CASE("a choice knows the table of every number of ranks, and of longer partial sums") {
  AllreduceChoice choice({kTenGigabit});
  for (const int ranks : {2, 4, 16, 4, 2}) {
    for (const int widening : {1, 2}) {
      const auto table = table_of({kTenGigabit}, ranks, widening);
      for (const std::size_t bytes :
           {std::size_t{0}, std::size_t{1} << 14, std::size_t{1} << 19, std::size_t{1} << 26}) {
        CHECK(choice({.bytes = bytes, .ranks = ranks, .widening = widening}) == table.lookup(bytes));
      }
    }
  }
  // The ring would send half as much again.
  CHECK(choice({.bytes = 64 << 20, .ranks = 4, .widening = 1}) == ring);
  CHECK(choice({.bytes = 64 << 20, .ranks = 4, .widening = 2}) == direct);
}

TEST_CASE("a choice's text says between whom, what was measured, and where other types are served otherwise") {
  AllreduceChoice choice({kTenGigabit});
  const std::string ranks = choice.text(4, false), hosts = choice.text(4, true);
  CHECK(ranks.find("4 ranks over TCP:\n" + choice.table(4, 1).text()) != std::string::npos);
  CHECK(ranks.find("bfloat16, whose partial sums are float32:\n" + choice.table(4, 2).text()) != std::string::npos);
  CHECK(ranks.find("links: 20 us a message, 2.0 us for one more beside it, 1.2 GB/s; sums: 10 GB/s") !=
        std::string::npos);
  CHECK(hosts.find("4 hosts over TCP") != std::string::npos);
  CHECK(hosts.find("bfloat16") == std::string::npos);  // accumulators in any case

  AllreduceChoice wanted({kTenGigabit, true, override_of("allreduce:-=ring")});
  CHECK(wanted.text(4, false).find("bfloat16") == std::string::npos);
}

TEST_CASE("buckets are larger where messages are slow beside bytes, and where there are more ranks, within limits") {
  CHECK(bucket_with(1, 4) <= bucket_with(10, 4));
  CHECK(bucket_with(1, 4) <= bucket_with(1, 64));
  CHECK(bucket_with(1, 4) < bucket_with(100, 64));
  CHECK(bucket_with(0, 2) == 1 << 20);
  CHECK(bucket_with(1e6, 4) == kMaxBucketBytes);
}
