#include "ops/nccl/watchdog.h"

#include "tests/support/catch.h"

namespace hvd::nccl {

TEST_CASE("the time of an operation counts from when it was seen to have begun") {
  const TimePoint start{};
  Watchdog watchdog(10s);
  CHECK_FALSE(watchdog.expired(start, 1, false));
  CHECK_FALSE(watchdog.expired(start + 100s, 1, false));
  CHECK_FALSE(watchdog.expired(start + 101s, 1, true));
  CHECK_FALSE(watchdog.expired(start + 110s, 1, true));
  CHECK(watchdog.expired(start + 111s, 1, true));
}

TEST_CASE("each operation has time of its own") {
  const TimePoint start{};
  Watchdog watchdog(10s);
  CHECK_FALSE(watchdog.expired(start, 1, true));
  CHECK_FALSE(watchdog.expired(start + 9s, 2, true));
  CHECK_FALSE(watchdog.expired(start + 18s, 2, true));
  CHECK_FALSE(watchdog.expired(start + 18s, 3, false));
  CHECK_FALSE(watchdog.expired(start + 100s, 3, true));
}

}  // namespace hvd::nccl
