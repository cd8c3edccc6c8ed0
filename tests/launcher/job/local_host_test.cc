#include "launcher/job/local_host.h"

#include <netinet/in.h>
#include <sys/socket.h>

#include <set>
#include <vector>

#include "tests/support/catch.h"

namespace hvd::launcher {
namespace {

// As servers do it. 0: no such port is free.
int listen_at(FileDescriptor& server, int port) {
  server = FileDescriptor(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  REQUIRE(setsockopt(server.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  if (bind(server.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return 0;
  if (listen(server.get(), 1) != 0) return 0;
  socklen_t length = sizeof address;
  REQUIRE(getsockname(server.get(), reinterpret_cast<sockaddr*>(&address), &length) == 0);
  return ntohs(address.sin_port);
}

TEST_CASE("a reserved port serves who asks for it by its number, once") {
  const ReservedPort reserved;
  FileDescriptor first, second;
  CHECK(listen_at(first, reserved.number()) == reserved.number());
  CHECK(listen_at(second, reserved.number()) == 0);
  first.reset();
  CHECK(listen_at(second, reserved.number()) == reserved.number());
}

TEST_CASE("nobody is given a reserved port by chance") {
  std::vector<ReservedPort> reserved(100);
  std::set<int> numbers;
  for (const ReservedPort& port : reserved) numbers.insert(port.number());
  CHECK(numbers.size() == reserved.size());
  std::vector<FileDescriptor> servers(500);
  for (FileDescriptor& server : servers) CHECK_FALSE(numbers.contains(listen_at(server, 0)));
}

}  // namespace
}  // namespace hvd::launcher
