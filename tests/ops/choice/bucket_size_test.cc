#include "ops/choice/bucket_size.h"

#include "tests/support/catch.h"
#include "tests/support/link_costs.h"

using namespace hvd;
using namespace hvd::testing;

namespace {

std::int64_t bucket_with(double latency_factor, int ranks) {
  LinkCosts costs = kTenGigabit;
  costs.latency *= latency_factor;
  AllreduceChoice choice({.costs = costs});
  return bucket_bytes(choice, ranks);
}

}  // namespace

TEST_CASE("buckets are larger where messages are slow beside bytes, and where there are more ranks, within limits") {
  CHECK(bucket_with(1, 4) <= bucket_with(10, 4));
  CHECK(bucket_with(1, 4) <= bucket_with(1, 64));
  CHECK(bucket_with(1, 4) < bucket_with(100, 64));
  CHECK(bucket_with(0, 2) == 1 << 20);
  CHECK(bucket_with(1e6, 4) == kMaxBucketBytes);
}
