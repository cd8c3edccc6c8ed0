#include "launcher/guardian_vigil.h"

#include "core/base/error.h"
#include "tests/launcher/start_time.h"
#include "tests/support/catch.h"

namespace hvd::launcher {
namespace {

TEST_CASE("without a lease nothing is too long") {
  GuardianVigil vigil;
  CHECK(vigil.mark().empty());
  CHECK_FALSE(vigil.deadline());
  vigil.hear(encode_guard("KEY=1", std::nullopt), kStart);
  CHECK(vigil.mark() == "KEY=1");
  CHECK_FALSE(vigil.deadline());
  CHECK_FALSE(vigil.silent(kStart + 1h));
  CHECK_FALSE(vigil.dismissed());
  vigil.hear("d", kStart);
  CHECK(vigil.dismissed());
}

TEST_CASE("a lease begins with every word") {
  GuardianVigil vigil;
  vigil.hear(encode_guard("KEY=1", 100ms), kStart);
  CHECK(vigil.deadline() == kStart + 100ms);
  CHECK_FALSE(vigil.silent(kStart + 99ms));
  vigil.hear("t", kStart + 80ms);
  CHECK_FALSE(vigil.silent(kStart + 179ms));
  CHECK(vigil.deadline() == kStart + 180ms);
  CHECK(vigil.silent(kStart + 180ms));
}

TEST_CASE("a guardian that was held up itself does not judge") {
  GuardianVigil vigil;
  vigil.hear(encode_guard("KEY=1", 100ms), kStart);
  CHECK_FALSE(vigil.silent(kStart + 10s));
  CHECK(vigil.deadline() == kStart + 10s + 100ms);
  CHECK(vigil.silent(kStart + 10s + 110ms));
}

TEST_CASE("messages without sense are passed over") {
  GuardianVigil vigil;
  for (const char* message : {"", "g", "g123", "g1234", "x", "tt"}) vigil.hear(message, kStart);
  CHECK(vigil.mark().empty());
  CHECK_FALSE(vigil.deadline());
  CHECK_FALSE(vigil.dismissed());
  CHECK_THROWS_AS(encode_guard("", 1s), InvalidArgument);
  CHECK_THROWS_AS(encode_guard(std::string(kMaxMarkBytes + 1, 'k'), 1s), InvalidArgument);
}

}  // namespace
}  // namespace hvd::launcher
