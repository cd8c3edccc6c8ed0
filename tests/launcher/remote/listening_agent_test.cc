#include "launcher/remote/listening_agent.h"

#include "core/base/error.h"
#include "tests/support/catch.h"

namespace hvd::launcher {
namespace {

TEST_CASE("where an agent listens") {
  CHECK(parse_listen({"--listen", "7780"}) == ListenOptions{.port = 7780});
  CHECK(parse_listen({"--once", "--listen=10.0.0.7:0"}) == ListenOptions{.host = "10.0.0.7", .once = true});
  CHECK(parse_listen({"--listen", "[::1]:7780"}) == ListenOptions{.host = "::1", .port = 7780});
  CHECK(parse_listen({"--listen", "0", "--until-eof"}) == ListenOptions{.until_eof = true});
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"--once"}, {"--listen"}, {"--listen", "70000"}, {"--listen", ":1"}, {"--listen", "x"}, {"--lisen", "1"}}) {
    CHECK_THROWS_AS(parse_listen(words), InvalidArgument);
  }
}

}  // namespace
}  // namespace hvd::launcher
