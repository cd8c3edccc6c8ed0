#include "launcher/remote/bootstrap.h"

#include <unistd.h>

#include "core/base/error.h"
#include "core/net/socket.h"
#include "launcher/processes/child_process.h"
#include "tests/support/catch.h"

namespace hvd::launcher {
namespace {

proto::Bootstrap read_from(const std::string& bytes) {
  auto [reader, writer] = make_pipe();
  REQUIRE(write(writer.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
  writer.reset();
  return read_bootstrap(reader.get(), deadline_after(5s));
}

TEST_CASE("what an agent is given arrives") {
  proto::Bootstrap bootstrap;
  bootstrap.set_host(3);
  bootstrap.set_key("secret");
  bootstrap.add_addresses("tcp:10.9.0.1:4711");
  const proto::Bootstrap read = read_from(encode_bootstrap(bootstrap) + "more");
  CHECK(read.host() == 3);
  CHECK(read.key() == "secret");
  CHECK(read.addresses(0) == "tcp:10.9.0.1:4711");
}

TEST_CASE("anything else is refused") {
  for (const char* bytes : {"", "\n", "x\n", "0\n", "9999999\n", "999999\n", "5\nabc", "3\n\xff\xff\xff", "-1\n"}) {
    CAPTURE(bytes);
    CHECK_THROWS_AS(read_from(bytes), InvalidArgument);
  }
}

TEST_CASE("and who says nothing is waited for until the deadline only") {
  const auto [reader, writer] = make_pipe();
  CHECK_THROWS_AS(read_bootstrap(reader.get(), deadline_after(20ms)), Timeout);
}

}  // namespace
}  // namespace hvd::launcher
