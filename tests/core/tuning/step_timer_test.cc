#include "core/tuning/step_timer.h"

#include "tests/support/catch.h"

using namespace hvd;

TEST_CASE("A step ends when an operation comes again") {
  StepTimer timer;
  TimePoint now{1000s};
  const auto perform = [&](const char* name) {
    now += 1ms;
    return timer.performed(name, 100, now);
  };
  CHECK_FALSE(perform("a"));
  CHECK_FALSE(perform("b"));
  CHECK_FALSE(perform("b"));  // the first step: when it began nobody knows
  CHECK_FALSE(perform("a"));
  CHECK_FALSE(perform("c"));
  const auto step = perform("a");
  REQUIRE(step);
  CHECK(step->bytes == 300);
  CHECK(step->duration == 3ms);
}
