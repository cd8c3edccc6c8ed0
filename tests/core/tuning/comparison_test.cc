#include "core/tuning/comparison.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "tests/support/catch.h"

using namespace hvd;

TEST_CASE("The median of odd and even numbers of values, in any order") {
  CHECK(median({3}) == 3);
  CHECK(median({4, 2}) == 3);
  CHECK(median({9, 1, 5}) == 5);
  CHECK(median({8, 1, 3, 4}) == 3.5);
  CHECK(median({2, 2, 2, 1000}) == 2);
}

TEST_CASE("A race ends with the entrant that costs least, after as many samples as it says") {
  struct Row {
    std::vector<double> costs;  // by entrant
    std::size_t favourite;
    std::size_t winner;
    int samples;
  };
  const Row rows[] = {
      {{5}, 0, 0, 0},          {{2, 1}, 0, 1, 2},           {{3, 1, 2}, 0, 1, 5},    {{4, 3, 2, 1}, 0, 3, 6},
      {{1, 2, 3, 4}, 3, 0, 6}, {{5, 4, 3, 1, 2}, 2, 3, 10}, {{1, 1, 1, 1}, 2, 2, 6},  // equals: the favourite
      {{2, 1, 2, 1}, 0, 1, 6},
  };
  for (const Row& row : rows) {
    CAPTURE(row.costs, row.favourite);
    Race race(row.costs.size(), row.favourite);
    int samples = 0;
    for (; !race.decided(); ++samples) race.took(std::array{row.costs[race.next()], row.costs[race.next()]});
    CHECK(race.winner() == row.winner);
    CHECK(samples == row.samples);
    CHECK(Race::samples(row.costs.size()) == row.samples);
  }
}

TEST_CASE("Everyone runs once in a round, the favourite first, and those with the higher costs leave") {
  const std::vector<double> costs = {4, 1, 3, 2};
  Race race(4, 2);
  std::vector<std::size_t> order;
  while (!race.decided()) {
    order.push_back(race.next());
    race.took(std::array{costs[race.next()]});
  }
  CHECK(order == std::vector<std::size_t>{2, 0, 1, 3, 1, 3});
}

TEST_CASE("An entrant is judged by all the steps that it has had") {
  Race race(4, 0);
  for (const double cost : {1.0, 2.0, 8.0, 9.0}) race.took(std::array{cost, cost, cost});
  // 0 has one slow step more than 1, which its median of six does not see.
  race.took(std::array{1.0, 1.0, 50.0});
  race.took(std::array{2.0, 2.0, 2.0});
  CHECK(race.winner() == 0);
}

namespace {

using Side = Comparison::Side;

using Costs = std::function<double(std::size_t pair)>;

struct Result {
  Side verdict;
  int samples;
};

// The challenger's samples cost `challenger[pair]`, the incumbent's `incumbent[pair]`, each in three steps of which
// one is an outlier.
Result compare(const Costs& incumbent, const Costs& challenger) {
  Comparison comparison;
  int samples = 0;
  for (; !comparison.verdict(); ++samples) {
    const auto pair = static_cast<std::size_t>(samples / 2);
    const double cost = comparison.next() == Side::incumbent ? incumbent(pair) : challenger(pair);
    comparison.took(std::array{cost, 100 * cost, cost});
  }
  return {*comparison.verdict(), samples};
}

}  // namespace

TEST_CASE("The sides change places from pair to pair") {
  Comparison comparison;
  std::string order;
  for (int i = 0; i < 8; ++i) {
    order += comparison.next() == Side::incumbent ? 'i' : 'c';
    comparison.took(std::array{comparison.next() == Side::incumbent ? 2.0 : 1.0});
  }
  CHECK(order == "icciicci");
}

TEST_CASE("Who wins a comparison") {
  const auto always = [](double cost) { return [cost](std::size_t) { return cost; }; };
  const auto except = [](double cost, std::vector<std::size_t> pairs, double there) {
    return [=](std::size_t pair) { return std::find(pairs.begin(), pairs.end(), pair) == pairs.end() ? cost : there; };
  };
  // Steps become slower by a fifth from pair to pair.
  const auto growing = [](double cost) { return [cost](std::size_t pair) { return cost * std::pow(1.2, pair); }; };
  const auto restless = [](std::size_t pair) { return pair % 2 == 0 ? 1.0 : 1.4; };
  const auto just_below = [](std::size_t pair) { return pair % 2 == 0 ? 0.985 : 1.385; };
  const int all = 2 * Comparison::kPairs;
  struct Row {
    const char* what;
    Costs incumbent, challenger;
    Side verdict;
    int samples;
  };
  const Row rows[] = {
      {"faster", always(1), always(0.9), Side::challenger, all},
      {"faster by 2 %", always(1), always(0.98), Side::challenger, all},
      {"faster by less than is worth it", always(1), always(0.995), Side::incumbent, all},
      {"equal", always(1), always(1), Side::incumbent, 4},
      {"slower", always(1), always(1.5), Side::incumbent, 4},
      {"one pair spoilt", always(1), except(0.9, {5}, 7), Side::challenger, all},
      {"two pairs spoilt", always(1), except(0.9, {5, 7}, 7), Side::incumbent, 16},
      {"everything becomes slower", growing(1), growing(0.9), Side::challenger, all},
      {"less than the noise", restless, just_below, Side::incumbent, all},
  };
  for (const Row& row : rows) {
    CAPTURE(row.what);
    const Result result = compare(row.incumbent, row.challenger);
    CHECK(result.verdict == row.verdict);
    CHECK(result.samples == row.samples);
  }
}
