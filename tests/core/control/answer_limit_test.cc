#include "core/control/negotiator.h"

#include "tests/core/control/times.h"
#include "tests/support/catch.h"

using namespace hvd;

TEST_CASE("Without a stall limit answers are waited for without end") {
  AnswerLimit limit;
  CHECK_FALSE(limit.is_set());
  limit.asked(kStart);
  CHECK(limit.deadline(false) == Deadline::max());
}

TEST_CASE("An answer is due within the limit, counted from the first question or the last news") {
  AnswerLimit limit(10s, 2s);
  CHECK(limit.deadline(false) == Deadline::max());
  limit.asked(kStart);
  limit.asked(kStart + 5s);
  CHECK(limit.deadline(false) == kStart + 12s);
  CHECK(limit.waited(kStart + 12s) == 12s);
  limit.heard(kStart + 8s, true);
  CHECK(limit.deadline(false) == kStart + 20s);
  limit.heard(kStart + 9s, false);
  CHECK(limit.deadline(false) == Deadline::max());
  limit.asked(kStart + 30s);
  CHECK(limit.deadline(false) == kStart + 42s);
}

TEST_CASE("A join may wait for an operation first, and then for a rank") {
  AnswerLimit limit(10s, 2s);
  limit.asked(kStart);
  CHECK(limit.deadline(true) == kStart + 22s);
}

TEST_CASE("A limit that is set for ever does not wrap around") {
  AnswerLimit limit(Duration::max() / 3, 2s);
  limit.asked(kStart);
  CHECK(limit.deadline(true) > kStart + 1000h);
}
