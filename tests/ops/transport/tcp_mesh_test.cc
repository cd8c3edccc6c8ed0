#include "ops/transport/tcp_mesh.h"

#include <map>

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

TEST_CASE("messages are spread over networks of the same speed") {
  struct Case {
    std::map<std::string, std::optional<int>> speeds;
    std::vector<std::string> chosen;
  };
  for (const Case& c : {Case{{{"a", 1'000}}, {"a"}}, Case{{{"a", 10'000}, {"b", 10'000}}, {"a", "b"}},
                        Case{{{"a", 1'000}, {"b", 100'000}}, {"b"}}, Case{{{"a", {}}, {"b", {}}}, {"a", "b"}},
                        Case{{{"a", {}}, {"b", 1'000}, {"c", 10'000}}, {"a", "c"}}}) {
    std::vector<std::string> addresses;
    for (const auto& [address, speed] : c.speeds) addresses.push_back(address);
    CHECK(equally_fast(addresses, [&](const std::string& address) { return c.speeds.at(address); }) == c.chosen);
  }
}

TEST_CASE("addresses without an interface of known speed have none") {
  CHECK_FALSE(link_speed("127.0.0.1").has_value());  // the loopback interface has no speed
  CHECK_FALSE(link_speed("::1").has_value());
  CHECK_FALSE(link_speed("192.0.2.1").has_value());  // of no interface
  CHECK_FALSE(link_speed("not an address").has_value());
}
