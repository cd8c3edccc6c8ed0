#include "launcher/remote/stream_link.h"

#include "tests/support/catch.h"

namespace hvd::launcher {

TEST_CASE("names of peers") {
  CHECK(peer_name("ipv4:10.9.0.2:41822") == "10.9.0.2:41822");
  CHECK(peer_name("ipv6:%5Bfe80::1%5D:41822") == "[fe80::1]:41822");
  CHECK(peer_name("unix:/a") == "unix:/a");
  CHECK(peer_name("ipv4") == "ipv4");
  CHECK(peer_name("").empty());
}

}  // namespace hvd::launcher
