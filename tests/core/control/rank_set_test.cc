#include "core/control/protocol/rank_set.h"

#include <random>
#include <set>

#include "tests/support/catch.h"

using namespace hvd;

namespace {

std::vector<int> listed(const std::set<int>& ranks) { return {ranks.begin(), ranks.end()}; }

}  // namespace

TEST_CASE("Ranks side by side become one range") {
  RankSet ranks(4);
  ranks.add(RankSet(2));
  CHECK(ranks.ranges() == std::vector<RankSet::Range>{{2, 3}, {4, 5}});
  ranks.add(RankSet(3));
  CHECK(ranks.ranges() == std::vector<RankSet::Range>{{2, 5}});
  CHECK(ranks.count() == 3);
  CHECK(ranks.lowest() == 2);
  CHECK(ranks.highest() == 4);
  ranks.remove(RankSet(3));
  CHECK(ranks.ranges() == std::vector<RankSet::Range>{{2, 3}, {4, 5}});
  CHECK(RankSet(3, 3).empty());
}

TEST_CASE("Sets of ranks do as std::set does") {
  std::mt19937 random(3);
  const auto pick = [&](int below) { return static_cast<int>(random() % static_cast<unsigned>(below)); };
  for (int trial = 0; trial < 300; ++trial) {
    RankSet a, b;
    std::set<int> x, y;
    for (int i = 0; i < 12; ++i) {
      const int begin = pick(40), end = begin + pick(5);
      const bool into_a = pick(2) == 0;
      (into_a ? a : b).add(RankSet(begin, end));
      for (int rank = begin; rank < end; ++rank) (into_a ? x : y).insert(rank);
    }
    std::set<int> both, only_a;
    for (const int rank : x) (y.contains(rank) ? both : only_a).insert(rank);
    CHECK(a.to_vector() == listed(x));
    CHECK(a.count() == static_cast<int>(x.size()));
    CHECK(intersection(a, b).to_vector() == listed(both));
    CHECK(difference(a, b).to_vector() == listed(only_a));
    CHECK(difference(a, b).count() == static_cast<int>(only_a.size()));
    CHECK(a.intersects(b) == !both.empty());
    CHECK(a.contains(b) == (both.size() == y.size()));
    for (int rank = 0; rank < 46; ++rank) CHECK(a.contains(rank) == x.contains(rank));
  }
}
