#include "ops/transport/tcp_mesh.h"

#include "tests/support/catch.h"

using namespace hvd;

TEST_CASE("fast links are worth several sockets") {
  struct Case {
    std::optional<int> megabits;
    int sockets;
  };
  for (const Case& c : {Case{std::nullopt, 1}, Case{10, 1}, Case{10'000, 1}, Case{24'999, 1}, Case{25'000, 2},
                        Case{40'000, 2}, Case{99'999, 2}, Case{100'000, 4}, Case{400'000, 4}}) {
    CAPTURE(c.megabits.value_or(-1));
    CHECK(sockets_for_speed(c.megabits) == c.sockets);
  }
}

TEST_CASE("addresses without an interface of known speed have none") {
  CHECK_FALSE(link_speed("127.0.0.1").has_value());  // the loopback interface has no speed
  CHECK_FALSE(link_speed("::1").has_value());
  CHECK_FALSE(link_speed("192.0.2.1").has_value());  // of no interface
  CHECK_FALSE(link_speed("not an address").has_value());
}
