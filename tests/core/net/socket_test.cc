#include "core/net/socket.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <future>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "core/net/frame.h"
#include "tests/support/catch.h"

using namespace hvd;

// The error of the next accept4(); 0: none.
static std::atomic<int> error_of_accept{0};

// In place of the C library's.
extern "C" int accept4(int fd, sockaddr* address, socklen_t* length, int flags) {
  errno = error_of_accept.exchange(0);
  return errno != 0 ? -1 : static_cast<int>(syscall(SYS_accept4, fd, address, length, flags));
}

namespace {

struct Pair {
  Socket client;
  Socket server;
};

Pair connect_pair(bool tcp) {
  Listener listener = tcp ? Listener::tcp("127.0.0.1") : Listener::unix_abstract();
  Socket client = Socket::connect(listener.address(), deadline_after(5s));
  wait_ready(listener.fd(), false, deadline_after(5s));
  auto server = listener.accept_now();
  REQUIRE(server);
  return {std::move(client), std::move(*server)};
}

bool closes_on_exec(int fd) { return (fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0; }

Bytes pattern(std::size_t size) {
  Bytes bytes(size);
  for (std::size_t i = 0; i < size; ++i) bytes[i] = std::byte(i * 31 % 251);
  return bytes;
}

}  // namespace

TEST_CASE("bytes arrive whole and in order, beyond what the kernel buffers") {
  const bool tcp = GENERATE(true, false);
  CAPTURE(tcp);
  Pair pair = connect_pair(tcp);
  const Bytes sent = pattern(std::size_t{8} << 20);
  auto sender = std::async(std::launch::async, [&] { pair.client.send_all(sent, deadline_after(30s), "the test"); });
  Bytes received(sent.size());
  pair.server.receive_all(received, deadline_after(30s), "the test");
  sender.get();
  CHECK(received == sent);
}

TEST_CASE("without a loopback interface connecting to this host fails at once, and says so") {
  std::string text;
  bool permitted = true;
  const auto start = Clock::now();
  std::thread([&] {
    permitted = unshare(CLONE_NEWNET) == 0;  // of this thread: a network in which everything is down
    if (!permitted) return;
    try {
      Socket::connect({.host = "127.0.0.1", .port = 1}, deadline_after(30s));
    } catch (const Internal& error) {
      text = error.what();
    } catch (const Error& error) {
      text = "of another kind: " + std::string(error.what());
    }
  }).join();
  if (!permitted) {
    WARN("namespaces are not permitted here");
    return;
  }
  CHECK_THAT(text, Catch::Matchers::Contains("cannot connect to tcp:127.0.0.1:1: Network is unreachable") &&
                       Catch::Matchers::Contains("ip link set lo up"));
  CHECK(Clock::now() - start < 25s);
}

TEST_CASE("several buffers go as one") {
  Pair pair = connect_pair(true);
  const Bytes sent = pattern(150);
  const auto all = std::span(sent);
  const std::vector<std::span<const std::byte>> buffers{all.first(100), {}, all.subspan(100)};
  CHECK(pair.client.send_some(buffers) == 150);
  Bytes received(150);
  pair.server.receive_all(received, deadline_after(5s), "the test");
  CHECK(received == sent);
}

TEST_CASE("more buffers than one call takes") {
  Pair pair = connect_pair(true);
  const Bytes one = pattern(1);
  CHECK(pair.client.send_some(std::vector<std::span<const std::byte>>(100, one)) == 64);
}

TEST_CASE("a closed peer is PeerLost with its name, and never a signal") {
  const bool tcp = GENERATE(true, false);
  CAPTURE(tcp);
  Pair pair = connect_pair(tcp);
  pair.server.close();
  Bytes buffer(1);
  CHECK_THROWS_WITH(pair.client.receive_all(buffer, deadline_after(5s), "rank 3 on host-b"),
                    Catch::Matchers::Contains("rank 3 on host-b"));
  CHECK(pair.client.receive_some(buffer) == std::nullopt);
  const Bytes many(std::size_t{1} << 20);
  CHECK_THROWS_AS(pair.client.send_all(many, deadline_after(5s), "rank 3"), PeerLost);
  CHECK(pair.client.send_some(many) == std::nullopt);
}

TEST_CASE("waiting ends at the deadline and says what for") {
  Pair pair = connect_pair(true);
  Bytes buffer(7);
  CHECK(pair.client.receive_some(buffer) == 0);
  try {
    pair.client.receive_all(buffer, deadline_after(20ms), "rank 5");
    FAIL("received from nobody");
  } catch (const Timeout& error) {
    CHECK(std::string(error.what()) == "waiting for 7 bytes from rank 5");
  }
  const Bytes endless(std::size_t{64} << 20);
  CHECK_THROWS_AS(pair.client.send_all(endless, deadline_after(20ms), "rank 5"), Timeout);
}

TEST_CASE("connecting waits for a listener that comes later") {
  Address address;
  {
    const Listener closed = Listener::tcp("127.0.0.1");
    address = closed.address();
  }
  auto client = std::async(std::launch::async, [&] { return Socket::connect(address, deadline_after(10s)); });
  CHECK(client.wait_for(30ms) == std::future_status::timeout);
  // The same port again, by hand: Listener::tcp only takes free ones.
  FileDescriptor late(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  setsockopt(late.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in own{};
  own.sin_family = AF_INET;
  own.sin_port = htons(address.port);
  own.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(bind(late.get(), reinterpret_cast<const sockaddr*>(&own), sizeof own) == 0);
  REQUIRE(listen(late.get(), 1) == 0);
  CHECK(static_cast<bool>(client.get()));
}

TEST_CASE("connecting to nobody names the address and the cause") {
  const std::string text = GENERATE(std::string("unix:hvd-nobody-listens-here"), std::string("tcp:127.0.0.1:1"));
  try {
    Socket::connect(Address::parse(text), deadline_after(30ms));
    FAIL("connected to nobody");
  } catch (const Timeout& error) {
    CHECK(std::string(error.what()).find(text) != std::string::npos);
    CHECK(std::string(error.what()).find("refused") != std::string::npos);
  }
}

TEST_CASE("an alarm ends the wait for a listener") {
  const Address nobody = Listener::tcp("127.0.0.1").address();
  const auto alarm = [] { throw Aborted("rank 2 has failed"); };
  const TimePoint start = Clock::now();
  CHECK_THROWS_AS(Socket::connect(nobody, deadline_after(30s), alarm), Aborted);
  CHECK(Clock::now() - start < 10s);
}

TEST_CASE("a descriptor is passed along") {
  Pair pair = connect_pair(false);
  std::array<int, 2> ends{};
  REQUIRE(pipe(ends.data()) == 0);
  FileDescriptor reading(ends[0]), writing(ends[1]);
  pair.client.send_descriptor(writing.get(), deadline_after(5s), "rank 1");
  const FileDescriptor passed = pair.server.receive_descriptor(deadline_after(5s), "rank 0");
  CHECK(passed.get() != writing.get());
  CHECK(closes_on_exec(passed.get()));
  REQUIRE(write(passed.get(), "x", 1) == 1);
  char seen = 0;
  CHECK((read(reading.get(), &seen, 1) == 1 && seen == 'x'));
}

TEST_CASE("no descriptor where one is expected") {
  Pair pair = connect_pair(false);
  SECTION("ordinary bytes instead") {
    pair.client.send_all(Bytes(1), deadline_after(5s), "rank 1");
    CHECK_THROWS_AS(pair.server.receive_descriptor(deadline_after(5s), "rank 0"), Internal);
  }
  SECTION("no descriptor left to receive it") {
    pair.client.send_descriptor(STDERR_FILENO, deadline_after(5s), "rank 1");
    rlimit before{};
    REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
    const int next = dup(STDERR_FILENO);
    close(next);
    const rlimit none{.rlim_cur = static_cast<rlim_t>(next), .rlim_max = before.rlim_max};
    REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
    CHECK_THROWS_WITH(pair.server.receive_descriptor(deadline_after(5s), "rank 0"),
                      Catch::Matchers::Contains("ulimit -n"));
    setrlimit(RLIMIT_NOFILE, &before);
  }
  SECTION("closed instead") {
    pair.client.close();
    CHECK_THROWS_AS(pair.server.receive_descriptor(deadline_after(5s), "rank 0"), PeerLost);
  }
  SECTION("nothing") { CHECK_THROWS_AS(pair.server.receive_descriptor(deadline_after(10ms), "rank 0"), Timeout); }
}

TEST_CASE("descriptors do not leak into programs that are started") {
  const bool tcp = GENERATE(true, false);
  const Listener listener = tcp ? Listener::tcp("127.0.0.1") : Listener::unix_abstract();
  const Pair pair = connect_pair(tcp);
  CHECK(closes_on_exec(listener.fd()));
  CHECK(closes_on_exec(pair.client.fd()));
  CHECK(closes_on_exec(pair.server.fd()));
}

TEST_CASE("both ends of a TCP connection send at once and notice a dead host") {
  const Pair pair = connect_pair(true);
  for (const int fd : {pair.client.fd(), pair.server.fd()}) {
    const auto option = [fd](int level, int name) {
      int value = 0;
      socklen_t length = sizeof value;
      getsockopt(fd, level, name, &value, &length);
      return value;
    };
    CHECK(option(IPPROTO_TCP, TCP_NODELAY) == 1);
    CHECK(option(SOL_SOCKET, SO_KEEPALIVE) == 1);
    CHECK(option(IPPROTO_TCP, TCP_USER_TIMEOUT) == 10'000);
    CHECK(option(IPPROTO_TCP, TCP_KEEPIDLE) + option(IPPROTO_TCP, TCP_KEEPINTVL) * option(IPPROTO_TCP, TCP_KEEPCNT) <=
          10);
  }
}

TEST_CASE("a connection knows its own numbers") {
  const Pair pair = connect_pair(true);
  CHECK(pair.client.local_host() == "127.0.0.1");
  CHECK(pair.client.peer_host() == "127.0.0.1");
  CHECK(connect_pair(false).client.peer_host().empty());
}

TEST_CASE("listeners take free ports and fresh names") {
  CHECK(Listener::tcp("127.0.0.1").address().port != 0);
  CHECK(Listener::tcp("0.0.0.0").address().host == "0.0.0.0");
  CHECK(Listener::unix_abstract().address() != Listener::unix_abstract().address());
  CHECK_THROWS_AS(Listener::tcp("203.0.113.1"), InvalidArgument);  // nobody's own address
}

TEST_CASE("a peer that takes nothing for longer than the lease is neither silent nor lost") {
  Pair pair = connect_pair(true);
  pair.client.grant_lease(1s);
  const Bytes much = pattern(std::size_t{1} << 20);
  while (pair.client.send_some(much).value() > 0) {
  }
  SilenceWatch watch;
  std::vector<Duration> silences;
  for (const TimePoint end = Clock::now() + 2500ms; Clock::now() < end; std::this_thread::sleep_for(100ms)) {
    const Delivery delivery = pair.client.delivery();
    CHECK_FALSE(delivery.complete);
    silences.push_back(watch.update(delivery, Clock::now()));
  }
  CHECK(*std::max_element(silences.begin(), silences.end()) < 1s);
  CHECK(pair.client.send_some(much).has_value());  // not broken
}

TEST_CASE("what the peer's host has confirmed is delivered, read or not") {
  Pair pair = connect_pair(true);
  CHECK(pair.client.delivery().complete);
  const Bytes little = pattern(100);
  REQUIRE(pair.client.send_some(little) == little.size());
  const Deadline timeout = deadline_after(5s);
  while (!pair.client.delivery().complete && Clock::now() < timeout) std::this_thread::sleep_for(1ms);
  CHECK(pair.client.delivery().complete);
  CHECK_FALSE(pair.client.delivery().awaits_answer);
}

TEST_CASE("a listener passes over connections that broke, and reports what will not pass") {
  Listener listener = Listener::tcp("127.0.0.1");
  for (const int broken : {EINTR, ECONNABORTED, EPROTO, EHOSTUNREACH}) {
    error_of_accept = broken;
    CHECK_FALSE(listener.accept_now());
  }
  for (const int lasting : {EPERM, ENOSYS, EMFILE, EBADF}) {
    CAPTURE(lasting);
    error_of_accept = lasting;
    CHECK_THROWS_AS(listener.accept_now(), Internal);
  }
}
