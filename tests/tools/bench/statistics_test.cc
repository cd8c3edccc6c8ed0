#include "tools/bench/statistics.h"

#include <numeric>

#include "tests/support/catch.h"

namespace hvd::bench {
namespace {

TEST_CASE("a quantile is one of the values, however few and in whatever order") {
  CHECK(quantile({7}, 0.5) == 7);
  CHECK(quantile({7}, 0.99) == 7);
  CHECK(quantile({3, 1, 2}, 0.5) == 2);
  CHECK(quantile({4, 1, 3, 2}, 0.5) == 2);
  CHECK(quantile({4, 1, 3, 2}, 0.99) == 4);
  CHECK(quantile({4, 1, 3, 2}, 0.001) == 1);
  std::vector<double> hundred(100);
  std::iota(hundred.rbegin(), hundred.rend(), 1);
  CHECK(quantile(hundred, 0.99) == 99);
  CHECK(quantile(hundred, 1) == 100);
}

}  // namespace
}  // namespace hvd::bench
