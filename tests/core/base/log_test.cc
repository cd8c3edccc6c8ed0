#include "core/base/log.h"

#include "core/base/error.h"
#include "tests/support/captured_stderr.h"
#include "tests/support/catch.h"

using namespace hvd;

TEST_CASE("levels have names, Horovod's included") {
  CHECK(parse_log_level("warning") == LogLevel::warning);
  CHECK(parse_log_level("WARN") == LogLevel::warning);
  CHECK(parse_log_level("Fatal") == LogLevel::error);
  CHECK(parse_log_level("TRACE") == LogLevel::trace);
  CHECK(parse_log_level("off") == LogLevel::off);
  CHECK_THROWS_WITH(parse_log_level("loud"), Catch::Matchers::StartsWith("one of trace"));
}

TEST_CASE("lines below the level are not written, others say who speaks") {
  const Log log("rank 3", LogLevel::warning);
  CHECK(log.enabled(LogLevel::error));
  CHECK_FALSE(log.enabled(LogLevel::info));
  const CapturedStderr captured;
  log.info("too quiet");
  log.warning("brackets {} stay as they are");
  CHECK(captured.count("too quiet") == 0);
  CHECK(captured.count("[hvd rank 3] warning: brackets {} stay as they are") == 1);
}
