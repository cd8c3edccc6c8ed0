#include "launcher/loop/packet_socket.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <string>
#include <vector>

#include "launcher/processes/child_process.h"
#include "tests/support/catch.h"

namespace hvd::launcher {
namespace {

TEST_CASE("packets keep their borders, and the end is seen") {
  auto [here, there] = make_packet_sockets();
  CHECK_FALSE(receive_packet(there.get()));
  CHECK(send_packet(here.get(), "one"));
  CHECK(send_packet(here.get(), std::string("t\0wo", 4)));
  here.reset();
  CHECK(receive_packet(there.get())->bytes == "one");
  CHECK(receive_packet(there.get())->bytes == std::string("t\0wo", 4));
  CHECK(receive_packet(there.get())->bytes.empty());
  CHECK_FALSE(send_packet(there.get(), "lost"));
  CHECK(errno == EPIPE);
}

TEST_CASE("descriptors travel with a packet, and close on exec") {
  auto [here, there] = make_packet_sockets();
  auto [reader, writer] = make_pipe();
  CHECK(send_packet(here.get(), "x", std::array<int, 2>{reader.get(), writer.get()}));
  writer.reset();
  const std::optional<Packet> packet = receive_packet(there.get());
  REQUIRE(packet->descriptors.size() == 2);
  CHECK_FALSE(packet->truncated);
  for (const FileDescriptor& entry : packet->descriptors) CHECK(fcntl(entry.get(), F_GETFD) == FD_CLOEXEC);
  CHECK(write(packet->descriptors[1].get(), "!", 1) == 1);
  char byte = 0;
  CHECK(read(reader.get(), &byte, 1) == 1);
  CHECK(byte == '!');
}

TEST_CASE("a packet that is too long, or brings more descriptors than may be opened, is told apart") {
  auto [here, there] = make_packet_sockets();
  CHECK(send_packet(here.get(), std::string(kMaxPacketBytes + 1, 'x')));
  CHECK(receive_packet(there.get())->truncated);
  CHECK_FALSE(send_packet(here.get(), "x", std::vector<int>(kMaxPacketDescriptors + 1, here.get())));
  CHECK(send_packet(here.get(), "x", std::vector<int>(kMaxPacketDescriptors, here.get())));
  rlimit limit{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &limit) == 0);
  const FileDescriptor next(dup(here.get()));
  const rlimit low{.rlim_cur = static_cast<rlim_t>(next.get()) + 3, .rlim_max = limit.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &low) == 0);
  const std::optional<Packet> packet = receive_packet(there.get());
  setrlimit(RLIMIT_NOFILE, &limit);
  CHECK(packet->truncated);
  CHECK(packet->descriptors.size() < kMaxPacketDescriptors);
}

TEST_CASE("a reader that is slow blocks nobody") {
  auto [here, there] = make_packet_sockets();
  while (send_packet(here.get(), "x")) {
  }
  CHECK(errno == EAGAIN);
}

}  // namespace
}  // namespace hvd::launcher
