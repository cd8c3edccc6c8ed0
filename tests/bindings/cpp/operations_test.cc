// Every operation of hvd.hpp, on however many ranks there are: ctest runs this executable alone, as a job of one, and
// once more under hvdrun with four ranks, which all run the same cases in the same order.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <hvd.hpp>
#include <numeric>
#include <span>
#include <vector>

#include "tests/support/catch.h"

namespace {

int sum_of_ranks() { return hvd::size() * (hvd::size() - 1) / 2; }

TEST_CASE("before init every operation says so") {
  std::vector<float> values(3);
  CHECK_FALSE(hvd::is_initialized());
  CHECK_THROWS_AS(hvd::rank(), hvd::NotInitialized);
  CHECK_THROWS_AS(hvd::algorithm_table(), hvd::NotInitialized);
  CHECK_THROWS_AS(hvd::allreduce(values), hvd::NotInitialized);
}

TEST_CASE("a session spans a scope, and another may follow") {
  for (int i = 0; i < 2; ++i) {
    hvd::Session session;
    CHECK(hvd::is_initialized());
    CHECK(hvd::rank() >= 0);
    CHECK(hvd::rank() < hvd::size());
    CHECK(hvd::local_rank() < hvd::local_size());
    CHECK(hvd::cross_rank() < hvd::cross_size());
    CHECK(hvd::algorithm_table().find("allreduce by size in bytes") == 0);
    hvd::barrier();
    CHECK(hvd::metrics().at("operations") == 1);
  }
  CHECK_FALSE(hvd::is_initialized());
}

TEST_CASE("containers in the shared arena are reduced like any other") {
  std::vector<float, hvd::allocator<float>> values;
  CHECK_THROWS_AS(values.resize(10), hvd::NotInitialized);
  hvd::Session session;
  values.assign(300'000, static_cast<float>(hvd::rank()));
  hvd::allreduce(values);
  CHECK(std::all_of(values.begin(), values.end(), [](float value) { return value == sum_of_ranks(); }));
  CHECK_THROWS_AS((hvd::allocator<double>().allocate(~std::size_t{0})), std::bad_array_new_length);
}

TEST_CASE("messages go round the ranks") {
  hvd::Session session;
  const std::vector<int> mine{hvd::rank(), 7};
  std::vector<int> received(2);
  CHECK_THROWS_AS(hvd::send(mine, hvd::size()), hvd::InvalidArgument);
  CHECK_THROWS_AS(hvd::receive(received, hvd::rank()), hvd::InvalidArgument);
  if (hvd::size() == 1) return;
  const int next = (hvd::rank() + 1) % hvd::size();
  const int previous = (hvd::rank() + hvd::size() - 1) % hvd::size();
  auto sent = hvd::send_async(mine, next, {.tag = 3, .channel = 1});
  CHECK(hvd::receive(received, hvd::any_rank, {.tag = 3, .channel = 1}) == previous);
  CHECK(received == std::vector<int>{previous, 7});
  sent.get();
  hvd::barrier();
}

TEST_CASE("prepared operations are started again and again, and moved") {
  hvd::Session session;
  std::vector<float> values(16), total(16), other(3);
  std::vector<std::span<float>> group{values, other};
  auto in_place = hvd::prepare_allreduce(values, hvd::max, {.name = "in place"});
  auto apart = hvd::prepare_allreduce(std::as_const(values), total);
  auto grouped = hvd::prepare_grouped_allreduce(group, hvd::sum);
  auto broadcast = hvd::prepare_broadcast(other, hvd::size() - 1);
  hvd::Prepared barrier = hvd::prepare_barrier();
  CHECK(in_place.ready());
  const auto own = static_cast<float>(hvd::rank()), last = static_cast<float>(hvd::size() - 1);
  for (int i = 0; i < 60; ++i) {
    values.assign(16, own);
    apart.start();
    apart.wait();
    REQUIRE(total.back() == static_cast<float>(sum_of_ranks()));
    in_place();
    REQUIRE(values.back() == last);
    other.assign(3, own);
    grouped.start();
    while (!grouped.wait_for(std::chrono::microseconds(50))) continue;
    REQUIRE(values.back() == last * static_cast<float>(hvd::size()));
    REQUIRE(other.back() == static_cast<float>(sum_of_ranks()));
    other.assign(3, own);
    broadcast();
    REQUIRE(other.front() == last);
    barrier();
  }
  hvd::Prepared moved = std::move(in_place);
  CHECK_THROWS_AS(in_place.start(), hvd::InvalidArgument);
  moved();
  moved.start();  // its destructor waits
}

TEST_CASE("allreduce in place and elsewhere, with every reduction") {
  hvd::Session session;
  std::vector<std::int64_t> values{hvd::rank(), hvd::rank() + 1};
  hvd::allreduce(values);
  CHECK(values == std::vector<std::int64_t>{sum_of_ranks(), sum_of_ranks() + hvd::size()});

  const std::array<double, 1> mine{static_cast<double>(hvd::rank() + 1)};
  double result[1] = {0};
  hvd::allreduce(mine, result, hvd::average);
  CHECK(result[0] == Approx((hvd::size() + 1) / 2.0));
  hvd::allreduce(mine, result, hvd::min);
  CHECK(result[0] == 1);
  hvd::allreduce(mine, std::span(result), hvd::max, {.name = "largest"});
  CHECK(result[0] == hvd::size());
  hvd::allreduce(mine, result, hvd::product);
  CHECK(result[0] == std::tgamma(hvd::size() + 1));
  hvd::allreduce(mine, result, hvd::sum, {.prescale = 2.0, .postscale = 0.5});
  CHECK(result[0] == sum_of_ranks() + hvd::size());
  hvd::barrier();
}

TEST_CASE("allreduce of truth values, 16-bit floats and nothing at all") {
  hvd::Session session;
  bool somewhere[2] = {hvd::rank() == 0, false};
  hvd::allreduce(somewhere, hvd::max);
  CHECK(somewhere[0]);
  CHECK_FALSE(somewhere[1]);

  std::vector<hvd::bfloat16> halves(5, hvd::bfloat16(1.5f));
  hvd::allreduce(halves);
  CHECK(halves[4] == 1.5f * static_cast<float>(hvd::size()));

  std::vector<float> empty;
  hvd::allreduce(empty);
  hvd::barrier();
}

TEST_CASE("allreduce with adasum averages what is equal and adds what is orthogonal") {
  hvd::Session session;
  const std::vector<double> equal{1, -2, 3};
  std::vector<double> own(static_cast<std::size_t>(hvd::size()));
  own[static_cast<std::size_t>(hvd::rank())] = hvd::rank() + 1;
  std::vector<double> result = equal;
  hvd::allreduce(result, hvd::adasum);
  CHECK(result == equal);
  hvd::allreduce(own, hvd::adasum);
  for (int r = 0; r < hvd::size(); ++r) CHECK(own[static_cast<std::size_t>(r)] == r + 1);
  std::vector<int> whole(3);
  CHECK_THROWS_AS(hvd::allreduce(whole, hvd::adasum), hvd::InvalidArgument);
  hvd::barrier();
}

TEST_CASE("a group is reduced as one") {
  hvd::Session session;
  std::vector<float> weight(4, 1.0f), bias(1, 2.0f);
  hvd::grouped_allreduce(std::vector<std::span<float>>{weight, bias});
  CHECK(weight == std::vector<float>(4, static_cast<float>(hvd::size())));
  CHECK(bias[0] == 2.0f * static_cast<float>(hvd::size()));
  hvd::barrier();
}

TEST_CASE("futures: ready, wait, get once, move") {
  hvd::Session session;
  std::vector<int> values(10, 1);
  auto future = hvd::allreduce_async(values);
  CHECK(future.wait_for(std::chrono::seconds(60)));
  CHECK(future.ready());
  CHECK(values[9] == hvd::size());

  hvd::Future<void> other = std::move(future);
  CHECK_FALSE(future.valid());
  CHECK_THROWS_AS(future.wait(), hvd::InvalidArgument);
  other.get();
  CHECK_FALSE(other.valid());
  CHECK_THROWS_AS(other.get(), hvd::InvalidArgument);

  std::vector<int> others(10, 1);
  auto earlier = hvd::allreduce_async(others), later = hvd::allreduce_async(values, hvd::max);
  earlier = std::move(later);  // waits for the operation that it had
  CHECK_FALSE(later.valid());
  CHECK_THROWS_AS(later.wait(), hvd::InvalidArgument);
  CHECK(others[0] == hvd::size());
  earlier.get();

  { auto waits_at_the_end_of_the_scope = hvd::allreduce_async(values, hvd::max); }
  CHECK(values[0] == hvd::size());
  hvd::barrier();
}

TEST_CASE("allgather joins ranges of different lengths") {
  hvd::Session session;
  const std::vector<int> mine(static_cast<std::size_t>(hvd::rank()), hvd::rank());  // rank r brings r times r
  std::vector<int> expected;
  for (int r = 0; r < hvd::size(); ++r) expected.insert(expected.end(), static_cast<std::size_t>(r), r);
  CHECK(hvd::allgather(mine) == expected);
  CHECK(hvd::allgather_async(mine, {.name = "again"}).get() == expected);
  std::remove_cv_t<decltype(expected)> given(expected.size());
  hvd::allgather(mine, given);
  CHECK(given == expected);
  given.pop_back();
  CHECK_THROWS_AS(hvd::allgather_async(mine, given, {.name = "too short"}).get(), hvd::Error);
  const bool truth[1] = {hvd::rank() == 0};
  const std::vector<hvd::boolean> all = hvd::allgather(truth);
  CHECK(all.size() == static_cast<std::size_t>(hvd::size()));
  CHECK(all[0]);
  hvd::barrier();
}

TEST_CASE("broadcast, alltoall, reducescatter, join") {
  hvd::Session session;
  const int last = hvd::size() - 1;
  std::vector<float> values(7, hvd::rank() == last ? 4.0f : 0.0f);
  hvd::broadcast(values, last);
  CHECK(values == std::vector<float>(7, 4.0f));

  // Rank r sends one value to rank 0, two to rank 1, ...
  std::vector<std::int64_t> counts(static_cast<std::size_t>(hvd::size()));
  std::iota(counts.begin(), counts.end(), 1);
  const auto total = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  const std::vector<std::int16_t> sent(static_cast<std::size_t>(total), static_cast<std::int16_t>(hvd::rank()));
  const auto received = hvd::alltoall(sent, counts);
  CHECK(received.counts == std::vector<std::int64_t>(counts.size(), hvd::rank() + 1));
  std::vector<std::int16_t> expected;
  for (int r = 0; r < hvd::size(); ++r) {
    expected.insert(expected.end(), static_cast<std::size_t>(hvd::rank() + 1), static_cast<std::int16_t>(r));
  }
  CHECK(received.values == expected);

  // 2 * size + 1 values: rank 0 gets three, the others two.
  const std::vector<double> rows(static_cast<std::size_t>(2 * hvd::size() + 1), 1.0);
  CHECK(hvd::reducescatter(rows) == std::vector<double>(hvd::rank() == 0 ? 3 : 2, hvd::size()));

  const int joined_last = hvd::join();
  CHECK(joined_last >= 0);
  CHECK(joined_last < hvd::size());
  hvd::barrier();
}

TEST_CASE("a wrong call throws, and the runtime stays usable") {
  hvd::Session session;
  std::vector<float> values(2, 1.0f), longer(3);
  CHECK_THROWS_AS(hvd::broadcast(values, hvd::size()), hvd::InvalidArgument);
  CHECK_THROWS_AS(hvd::allreduce(values, longer), hvd::InvalidArgument);
  hvd::allreduce(values);
  CHECK(values[0] == static_cast<float>(hvd::size()));
  hvd::barrier();
}

TEST_CASE("ranks that disagree all hear of it, and the runtime stays usable") {
  hvd::Session session;
  if (hvd::size() > 1) {
    std::vector<float> values(hvd::rank() == 0 ? 2 : 3, 1.0f);
    CHECK_THROWS_AS(hvd::allreduce(values, hvd::sum, {.name = "disputed"}), hvd::Mismatch);
  }
  std::vector<float> values(1, 1.0f);
  hvd::allreduce(values);
  CHECK(values[0] == static_cast<float>(hvd::size()));
  hvd::barrier();
}

}  // namespace
