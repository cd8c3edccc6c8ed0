#include "core/base/error.h"
#include "core/net/socket.h"
#include "tests/support/catch.h"

using namespace hvd;

TEST_CASE("an address survives being text") {
  const std::string text = GENERATE(std::string("tcp:10.0.0.7:4711"), std::string("tcp:host-b.example:1"),
                                    std::string("tcp:[fe80::1]:65535"), std::string("unix:hvd-0123"),
                                    std::string("unix:a:b"), "unix:" + std::string(107, 'n'));
  CAPTURE(text);
  CHECK(Address::parse(text).to_string() == text);
}

TEST_CASE("an address's parts") {
  const Address tcp = Address::parse("tcp:[::1]:80");
  CHECK(tcp.kind == Address::Kind::tcp);
  CHECK(tcp.host == "::1");
  CHECK(tcp.port == 80);
  const Address local = Address::parse("unix:name");
  CHECK(local.kind == Address::Kind::unix_abstract);
  CHECK(local.host == "name");
}

TEST_CASE("malformed addresses are refused") {
  const std::string text =
      GENERATE(std::string(""), std::string("10.0.0.7:4711"), std::string("tcp:"), std::string("tcp::1"),
               std::string("tcp:host"), std::string("tcp:host:"), std::string("tcp:host:0"),
               std::string("tcp:host:65536"), std::string("tcp:host:-1"), std::string("tcp:host:12x"),
               std::string("tcp:::1:80"), std::string("unix:"), "unix:" + std::string(108, 'n'),
               "tcp:" + std::string(256, 'h') + ":1", std::string("udp:host:1"), std::string("tcp:a\0b:1", 9));
  CAPTURE(text);
  CHECK_THROWS_AS(Address::parse(text), InvalidArgument);
}
