#include "core/control/coordinator/ready_queue.h"

#include <limits>

#include "tests/core/control/times.h"
#include "tests/support/catch.h"

using namespace hvd;

namespace {

const BatchingPolicy kPolicy{.coalescing = 30us, .bucket_bytes = 100};

}  // namespace

TEST_CASE("What is ready waits for more that is under way, but not for long, and not if there is enough") {
  CHECK(kPolicy.due({{.bytes = 8, .since = kStart}}, false) == TimePoint::min());
  CHECK(kPolicy.due({{.bytes = 8, .since = kStart}, {.bytes = 8, .since = kStart + 20us}}, true) == kStart + 30us);
  CHECK(kPolicy.due({{.bytes = 8, .since = kStart}, {.bytes = 1 << 20, .since = kStart}}, true) == TimePoint::min());
  const std::vector<BatchingPolicy::Ready> many(100, {.bytes = 4096, .since = kStart});
  CHECK(kPolicy.due(many, true) == TimePoint::min());
  constexpr auto kHuge = std::numeric_limits<std::int64_t>::max();
  CHECK(kPolicy.due({{.bytes = 1}, {.bytes = kHuge}, {.bytes = kHuge}}, true) == TimePoint::min());
}

TEST_CASE("Without priorities everything is answered, in the order of readiness") {
  CHECK(kPolicy.choose({{.bytes = 90}, {.bytes = 1000}, {.bytes = 1}}) == std::vector<std::size_t>{0, 1, 2});
}

TEST_CASE("With priorities an answer is a bucket of the most urgent, or the one that is larger") {
  CHECK(kPolicy.choose({{.bytes = 60}, {.priority = 1, .bytes = 40}, {.priority = 2, .bytes = 50}, {.bytes = 5}}) ==
        std::vector<std::size_t>{2, 1});
  CHECK(kPolicy.choose({{.priority = -1, .bytes = 60}, {.bytes = 40}}) == std::vector<std::size_t>{1, 0});
  CHECK(kPolicy.choose({{.bytes = 10}, {.priority = 1, .bytes = 500}}) == std::vector<std::size_t>{1});
}
