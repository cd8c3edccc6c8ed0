#include "ops/choice/cost_model.h"

#include "tests/support/catch.h"
#include "tests/support/link_costs.h"

using namespace hvd;
using namespace hvd::testing;
using enum AllreduceAlgorithm;

namespace {

constexpr LinkCosts kOneGigabit{.latency = 40e-6, .per_byte = 8e-9, .per_message = 4e-6, .reduce_per_byte = 0.1e-9};
constexpr LinkCosts kHundredGigabit{
    .latency = 10e-6, .per_byte = 0.08e-9, .per_message = 1e-6, .reduce_per_byte = 0.05e-9};

double microseconds(AllreduceAlgorithm algorithm, int ranks, std::size_t bytes, int widening = 1) {
  return 1e6 * predicted_seconds(algorithm, kTenGigabit, {.bytes = bytes, .ranks = ranks, .widening = widening});
}

// The first size, in steps of an eighth, at which `later` is faster than `earlier`.
double switch_point(AllreduceAlgorithm earlier, AllreduceAlgorithm later, const LinkCosts& costs, int ranks) {
  double bytes = 8;
  const auto size = [&] { return AllreduceSize{.bytes = static_cast<std::size_t>(bytes), .ranks = ranks}; };
  while (bytes < 1e12 && predicted_seconds(later, costs, size()) >= predicted_seconds(earlier, costs, size())) {
    bytes *= 1.125;
  }
  return bytes;
}

}  // namespace

TEST_CASE("an allreduce costs latencies when it is short and bytes when it is long") {
  struct Case {
    AllreduceAlgorithm algorithm;
    int ranks;
    std::size_t bytes;
    double expected;  // microseconds, by hand
  };
  const auto c = GENERATE(values<Case>({
      {one_shot, 1, 1000, 0},
      {ring, 1, 1000, 0},
      // latencies: one, two, 2 log2 N, 2 (N-1); and messages beside each other
      {one_shot, 4, 0, 20 + 2 * 2},
      {bruck, 2, 0, 20},
      {bruck, 4, 0, 2 * 20},
      {bruck, 5, 0, 3 * 20},
      {bruck, 16, 0, 4 * 20},
      {direct, 4, 0, 2 * (20 + 2 * 2)},
      {direct, 16, 0, 2 * 4 * 20},  // four messages at a time
      {halving_doubling, 4, 0, 4 * 20},
      {halving_doubling, 16, 0, 8 * 20},
      {halving_doubling, 6, 0, 4 * 20 + 2 * 20},
      {ring, 4, 0, 6 * 20},
      // 40 MB are 32000 us on the wire and 4000 us of arithmetic
      {one_shot, 2, 40'000'000, 20 + 32'000 + 4'000},
      {one_shot, 4, 40'000'000, 20 + 3 * 36'000},
      {bruck, 4, 40'000'000, 40 + 3 * 36'000},
      {direct, 2, 40'000'000, 2 * (20 + 16'000) + 2'000},
      {direct, 4, 40'000'000, 2 * (3 * 20 + 24'000 * 1.05) + 3'000},  // one message at a time
      {halving_doubling, 4, 40'000'000, 80 + 48'000},
      {halving_doubling, 3, 40'000'000, 40 + 32'000 + 40 + 64'000},
      {ring, 4, 40'000'000, 48'000},
      // a slice of one segment
      {ring, 4, 4 * 50'000, 6 * (20 + 40)},
  }));
  CAPTURE(algorithm_name(c.algorithm), c.ranks, c.bytes);
  CHECK(microseconds(c.algorithm, c.ranks, c.bytes) == Approx(c.expected));
}

TEST_CASE("where partial sums are longer, those that send them pay for it") {
  constexpr std::size_t kBytes = 40'000'000;
  CHECK(microseconds(one_shot, 4, kBytes, 2) == microseconds(one_shot, 4, kBytes));
  CHECK(microseconds(bruck, 4, kBytes, 2) == microseconds(bruck, 4, kBytes));
  CHECK(microseconds(direct, 4, kBytes, 2) == microseconds(direct, 4, kBytes));
  CHECK(microseconds(ring, 4, kBytes, 2) == Approx(1.5 * microseconds(ring, 4, kBytes)));
  CHECK(microseconds(halving_doubling, 4, kBytes, 2) - 80 ==
        Approx(1.5 * (microseconds(halving_doubling, 4, kBytes) - 80)));
}

TEST_CASE("arithmetic that is slower than the wire shows, wherever it is done") {
  LinkCosts slow = kTenGigabit;
  slow.reduce_per_byte = 2e-9;
  const AllreduceSize size{.bytes = 40'000'000, .ranks = 4};
  CHECK(predicted_seconds(ring, slow, size) == Approx(0.75 * 40e6 * (2e-9 + 0.8e-9)));
  for (const AllreduceAlgorithm algorithm : kAllreduceAlgorithms) {
    CHECK(predicted_seconds(algorithm, slow, size) > predicted_seconds(algorithm, kTenGigabit, size));
  }
}

TEST_CASE("algorithms take turns at sane sizes") {
  struct Case {
    const char* links;
    LinkCosts costs;
    int ranks;
    AllreduceAlgorithm earlier, later;
    double lowest, highest;
  };
  const auto c = GENERATE(values<Case>({
      {"10 Gb/s", kTenGigabit, 4, one_shot, direct, 4e3, 40e3},
      {"10 Gb/s", kTenGigabit, 16, one_shot, direct, 4e3, 40e3},
      {"10 Gb/s", kTenGigabit, 16, direct, ring, 0.5e6, 8e6},
      {"10 Gb/s", kTenGigabit, 16, halving_doubling, ring, 0.5e6, 8e6},
      {"10 Gb/s", kTenGigabit, 4, direct, ring, 50e3, 2e6},
      {"1 Gb/s", kOneGigabit, 4, one_shot, direct, 1e3, 10e3},
      {"1 Gb/s", kOneGigabit, 4, direct, ring, 10e3, 500e3},
      {"1 Gb/s", kOneGigabit, 16, direct, ring, 100e3, 2e6},
      {"100 Gb/s", kHundredGigabit, 16, direct, ring, 0.3e6, 32e6},
      {"100 Gb/s", kHundredGigabit, 64, halving_doubling, ring, 4e6, 128e6},
  }));
  CAPTURE(c.links, c.ranks, algorithm_name(c.earlier), algorithm_name(c.later));
  const double at = switch_point(c.earlier, c.later, c.costs, c.ranks);
  CHECK(at > c.lowest);
  CHECK(at < c.highest);
}

TEST_CASE("what carries messages between hosts is what takes a megabyte round the ring faster, and it says why") {
  const LinkCosts slow{.latency = 1e-3, .per_byte = 1e-8, .per_message = 0, .reduce_per_byte = 0};
  const LinkCosts fast{.latency = 1e-6, .per_byte = 1e-9, .per_message = 0, .reduce_per_byte = 0};
  const TransportChoice tcp = choose_transport(slow, fast, 2), mpi = choose_transport(fast, slow, 2);
  CHECK_FALSE(tcp.mpi);
  CHECK(tcp.reason.find("between hosts TCP carry the data: a megabyte on the ring takes ") == 0);
  CHECK(mpi.mpi);
  CHECK(mpi.reason.find("between hosts MPI's messages carry the data: a megabyte on the ring takes ") == 0);
}
