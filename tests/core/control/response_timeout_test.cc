#include "core/control/negotiator.h"

#include "tests/core/control/times.h"
#include "tests/support/catch.h"

using namespace hvd;

TEST_CASE("Without a stall limit responses are waited for without end") {
  ResponseTimeout timeout;
  CHECK_FALSE(timeout.is_set());
  timeout.asked(kStart);
  CHECK(timeout.deadline(false) == Deadline::max());
}

TEST_CASE("A response is due within the timeout, counted from the first question or the last news") {
  ResponseTimeout timeout(10s, 2s);
  CHECK(timeout.deadline(false) == Deadline::max());
  timeout.asked(kStart);
  timeout.asked(kStart + 5s);
  CHECK(timeout.deadline(false) == kStart + 12s);
  CHECK(timeout.waited(kStart + 12s) == 12s);
  timeout.restart(kStart + 8s, true);
  CHECK(timeout.deadline(false) == kStart + 20s);
  timeout.restart(kStart + 9s, false);
  CHECK(timeout.deadline(false) == Deadline::max());
  timeout.asked(kStart + 30s);
  CHECK(timeout.deadline(false) == kStart + 42s);
}

TEST_CASE("A join may wait for an operation first, and then for a rank") {
  ResponseTimeout timeout(10s, 2s);
  timeout.asked(kStart);
  CHECK(timeout.deadline(true) == kStart + 22s);
}

TEST_CASE("A timeout that is set for ever does not wrap around") {
  ResponseTimeout timeout(Duration::max() / 3, 2s);
  timeout.asked(kStart);
  CHECK(timeout.deadline(true) > kStart + 1000h);
}
