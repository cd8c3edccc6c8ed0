#include "core/net/authentication.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

#include <atomic>
#include <cstring>
#include <future>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "core/net/frame.h"
#include "tests/support/captured_stderr.h"
#include "tests/support/catch.h"
#include "tests/support/timeouts.h"

using namespace hvd;

namespace {

JobKey key_of(char digit) { return JobKey::from_hex(std::string(2 * JobKey::kBytes, digit)); }

Nonce nonce_of(int value) {
  Nonce nonce;
  nonce.fill(std::byte(value));
  return nonce;
}

template <std::size_t kSize>
std::array<std::byte, kSize> with_flipped_bit(std::array<std::byte, kSize> message, std::size_t at) {
  message[at] ^= std::byte{1};
  return message;
}

struct Port {
  explicit Port(bool tcp = true)
      : acceptor(tcp ? Listener::tcp("127.0.0.1") : Listener::unix_abstract(), key, Purpose::control, log) {}

  std::future<Socket> connect_later(const JobKey& with, Purpose purpose, int rank, Duration timeout = 10s) {
    return std::async(std::launch::async, [=, address = acceptor.address()] {
      return connect_authenticated(address, with, purpose, rank, deadline_after(timeout));
    });
  }
  Socket connect_unauthenticated() { return Socket::connect(acceptor.address(), deadline_after(5s)); }

  Log log{"test", LogLevel::warning};
  JobKey key = JobKey::random();
  Acceptor acceptor;
};

}  // namespace

TEST_CASE("both sides are convinced, and the server learns the rank") {
  const ServerHandshake server(key_of('a'), Purpose::store, nonce_of(1));
  ClientHandshake client(key_of('a'), Purpose::store, 42, nonce_of(2));
  const auto verification = server.verify(client.prove(server.challenge()));
  REQUIRE(verification.rejection == nullptr);
  CHECK(verification.rank == 42);
  CHECK_NOTHROW(client.check(verification.reply));
}

TEST_CASE("the server refuses another key, another purpose and another challenge") {
  const ServerHandshake server(key_of('a'), Purpose::store, nonce_of(1));
  const ServerHandshake earlier(key_of('a'), Purpose::store, nonce_of(3));
  ClientHandshake right(key_of('a'), Purpose::store, 0, nonce_of(2));
  ClientHandshake wrong_key(key_of('b'), Purpose::store, 0, nonce_of(2));
  ClientHandshake wrong_purpose(key_of('a'), Purpose::data, 0, nonce_of(2));

  CHECK(server.verify(right.prove(server.challenge())).rejection == nullptr);
  CHECK(server.verify(wrong_key.prove(server.challenge())).rejection != nullptr);
  CHECK(server.verify(wrong_purpose.prove(server.challenge())).rejection != nullptr);
  CHECK(server.verify(right.prove(earlier.challenge())).rejection != nullptr);  // a recorded proof
}

TEST_CASE("no bit of a proof, and no bit of the answer, can be changed") {
  const ServerHandshake server(key_of('a'), Purpose::control, nonce_of(1));
  ClientHandshake client(key_of('a'), Purpose::control, 3, nonce_of(2));
  const Proof proof = client.prove(server.challenge());
  for (std::size_t at = 0; at < proof.size(); ++at) {
    CAPTURE(at);
    CHECK(server.verify(with_flipped_bit(proof, at)).rejection != nullptr);
  }
  const Reply reply = server.verify(proof).reply;
  for (std::size_t at = 0; at < reply.size(); ++at)
    CHECK_THROWS_AS(client.check(with_flipped_bit(reply, at)), PeerLost);
}

TEST_CASE("a client's own hash sent back does not convince it") {
  const ServerHandshake server(key_of('a'), Purpose::control, nonce_of(1));
  ClientHandshake client(key_of('a'), Purpose::control, 3, nonce_of(1));
  const Proof proof = client.prove(server.challenge());
  Reply mirrored;
  std::memcpy(mirrored.data(), proof.data() + proof.size() - mirrored.size(), mirrored.size());
  CHECK_THROWS_AS(client.check(mirrored), PeerLost);
}

TEST_CASE("a challenge that is not hvd's, or another version's, is refused") {
  const ServerHandshake server(key_of('a'), Purpose::control, nonce_of(1));
  ClientHandshake client(key_of('a'), Purpose::control, 3, nonce_of(2));
  CHECK_THROWS_AS(client.prove(with_flipped_bit(server.challenge(), 0)), PeerLost);
  CHECK_THROWS_AS(client.prove(with_flipped_bit(server.challenge(), 4)), PeerLost);
}

TEST_CASE("the job's key as text") {
  const JobKey key = JobKey::random();
  CHECK(JobKey::from_hex(key.to_hex()).bytes() == key.bytes());
  CHECK(JobKey::random().bytes() != key.bytes());
  CHECK(JobKey::from_hex(std::string(64, 'A')).to_hex() == std::string(64, 'a'));

  const std::string wrong =
      GENERATE(std::string(), std::string(63, 'd'), std::string(65, 'd'), std::string(63, 'd') + "g");
  try {
    JobKey::from_hex(wrong);
    FAIL("accepted '" << wrong << "'");
  } catch (const InvalidArgument& error) {
    CHECK(std::string(error.what()).find("ddd") == std::string::npos);  // a secret is not for logs
  }
}

TEST_CASE("a peer with the key comes through, with its rank and a clean stream") {
  const bool tcp = GENERATE(true, false);
  CAPTURE(tcp);
  Port port(tcp);
  auto client = port.connect_later(port.key, Purpose::control, 7);
  Peer peer = port.acceptor.accept(deadline_after(10s), "rank 7");
  Socket socket = client.get();
  CHECK(peer.rank == 7);

  const Bytes sent{std::byte{1}, std::byte{2}, std::byte{3}};
  socket.send_all(sent, deadline_after(5s), "server");
  Bytes received(3);
  peer.socket.receive_all(received, deadline_after(5s), "client");
  CHECK(received == sent);
}

TEST_CASE("many peers at once") {
  constexpr int kPeers = 40;
  Port port;
  std::vector<std::future<Socket>> clients;
  for (int rank = 0; rank < kPeers; ++rank) clients.push_back(port.connect_later(port.key, Purpose::control, rank));
  std::set<int> ranks;
  for (int i = 0; i < kPeers; ++i) ranks.insert(port.acceptor.accept(deadline_after(20s), "peers").rank);
  CHECK(ranks.size() == kPeers);
  for (auto& client : clients) CHECK_NOTHROW(client.get());
}

TEST_CASE("a wrong key and a wrong purpose are refused on both ends") {
  const CapturedStderr captured;
  Port port;
  auto wrong_key = port.connect_later(JobKey::random(), Purpose::control, 1);
  auto wrong_purpose = port.connect_later(port.key, Purpose::data, 2);
  for (const auto* client : {&wrong_key, &wrong_purpose}) {
    while (client->wait_for(0s) != std::future_status::ready) {
      CHECK_THROWS_AS(port.acceptor.accept(deadline_after(10ms), "nobody"), Timeout);
    }
  }
  CHECK_THROWS_AS(wrong_key.get(), PeerLost);
  CHECK_THROWS_AS(wrong_purpose.get(), PeerLost);
  CHECK(captured.count("dropped a connection") == 1);  // once, though two were refused
}

TEST_CASE("unauthenticated connections delay nobody", "[timed]") {
  const CapturedStderr captured;
  Port port;
  std::vector<Socket> pending_connections;
  for (int i = 0; i < 20; ++i) pending_connections.push_back(port.connect_unauthenticated());  // these stay silent
  const Bytes garbage(100'000, std::byte{'G'});
  for (int i = 0; i < 20; ++i) {
    pending_connections.push_back(port.connect_unauthenticated());
    pending_connections.back().send_some(garbage);
  }
  for (int i = 0; i < 20; ++i) port.connect_unauthenticated();  // these close at once

  const TimePoint start = Clock::now();
  auto client = port.connect_later(port.key, Purpose::control, 5);
  CHECK(port.acceptor.accept(deadline_after(10s), "rank 5").rank == 5);
  CHECK_NOTHROW(client.get());
  CHECK(Clock::now() - start < testing::at_most(1500ms));  // less than a connection may take that sends nothing
  CHECK(captured.count("dropped a connection") <= 1);
}

TEST_CASE("a silent connection is dropped after two seconds") {
  const CapturedStderr captured;
  Port port;
  CHECK(port.acceptor.next_deadline() == Deadline::max());
  Socket pending = port.connect_unauthenticated();
  CHECK_THROWS_AS(port.acceptor.accept(deadline_after(100ms), "nobody"), Timeout);
  CHECK(port.acceptor.next_deadline() < deadline_after(2s));
  CHECK_THROWS_AS(port.acceptor.accept(deadline_after(2200ms), "nobody"), Timeout);
  CHECK(port.acceptor.next_deadline() == Deadline::max());
  Bytes challenge(1000);
  CHECK(pending.receive_some(challenge) == 40);
  CHECK(wait_ready(pending.fd(), false, deadline_after(1s)));
  CHECK(pending.receive_some(challenge) == std::nullopt);
  CHECK(captured.count("did not prove itself in time") == 1);
}

TEST_CASE("a flood of connections is bounded, and the honest come through") {
  const CapturedStderr captured;
  Port port(false);
  std::vector<Socket> pending_connections;
  // Unix sockets refuse beyond the backlog, so the acceptor takes them in between.
  for (int i = 0; i < 200; ++i) {
    pending_connections.push_back(port.connect_unauthenticated());
    port.acceptor.accept_now();
  }
  auto client = port.connect_later(port.key, Purpose::control, 9);
  CHECK(port.acceptor.accept(deadline_after(10s), "rank 9").rank == 9);
  CHECK_NOTHROW(client.get());
}

TEST_CASE("unauthenticated connections leave a process the most of its descriptors") {
  const CapturedStderr captured;
  Port port(false);
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit few{.rlim_cur = 512, .rlim_max = before.rlim_max};
  REQUIRE(setrlimit(RLIMIT_NOFILE, &few) == 0);
  std::vector<Socket> pending_connections;  // in this process too, with a descriptor at either end
  for (int i = 0; i < 200; ++i) {
    pending_connections.push_back(port.connect_unauthenticated());
    port.acceptor.accept_now();
  }
  setrlimit(RLIMIT_NOFILE, &before);
  std::size_t dropped = 0;
  Bytes challenge(1000);
  for (Socket& pending : pending_connections) {
    if (pending.receive_some(challenge) == kChallengeBytes && !pending.receive_some(challenge)) ++dropped;
  }
  CHECK(dropped == 200 - 512 / 4);
  CHECK(captured.count("too many connections that have not proved themselves") == 1);
}

TEST_CASE("the acceptor serves event loops") {
  Port port;
  auto client = port.connect_later(port.key, Purpose::control, 4);
  std::optional<Peer> peer;
  while (!peer) {
    REQUIRE(wait_ready(port.acceptor.fd(), false, deadline_after(5s)));
    peer = port.acceptor.accept_now();
  }
  CHECK(peer->rank == 4);
  client.get();
}

TEST_CASE("accept names what it waited for") {
  Port port;
  CHECK_THROWS_WITH(port.acceptor.accept(deadline_after(5ms), "ranks 2, 5"), "waiting for ranks 2, 5");
}

TEST_CASE("a connection that a listener has not accepted goes to the next listener at its port") {
  const JobKey key = JobKey::random();
  const Log log("test", LogLevel::off);
  std::optional<Listener> first = Listener::tcp("127.0.0.1");
  const Address address = first->address();
  auto client = std::async(std::launch::async,
                           [&] { return connect_authenticated(address, key, Purpose::store, 3, deadline_after(30s)); });
  std::this_thread::sleep_for(50ms);  // it has connected, most likely
  first.reset();
  Acceptor next(Listener::tcp("127.0.0.1", address.port), key, Purpose::store, log);
  CHECK(next.accept(deadline_after(30s), "rank 3").rank == 3);
  client.get();
}

TEST_CASE("a silent server is a timeout, a server of another job is told apart") {
  Listener silent = Listener::tcp("127.0.0.1");
  const auto connect = [&](Duration timeout) {
    return connect_authenticated(silent.address(), JobKey::random(), Purpose::store, 0, deadline_after(timeout));
  };
  CHECK_THROWS_AS(connect(50ms), Timeout);
  auto client = std::async(std::launch::async, [&] { return connect(5s); });
  std::vector<Socket> accepted;
  const Bytes banner(40, std::byte{'S'});
  while (client.wait_for(1ms) == std::future_status::timeout) {
    if (auto socket = silent.accept_now()) {
      socket->send_some(banner);
      accepted.push_back(std::move(*socket));
    }
  }
  CHECK_THROWS_WITH(client.get(), Catch::Matchers::Contains("is not hvd"));
}

TEST_CASE("an alarm ends the wait for a peer") {
  Port port;
  int asked = 0;
  const auto alarm = [&] {
    if (++asked == 2) throw Aborted("rank 2 has failed");
  };
  const TimePoint start = Clock::now();
  CHECK_THROWS_AS(port.acceptor.accept(deadline_after(30s), "rank 2", alarm), Aborted);
  CHECK(asked == 2);
  CHECK(Clock::now() - start < 10s);
}

TEST_CASE("an alarm ends the wait for a server that does not answer, or closes what it accepts") {
  const bool accepts = GENERATE(false, true);
  Listener listener = Listener::tcp("127.0.0.1");
  std::atomic<bool> ended{false};
  std::thread server([&] {
    while (accepts && !ended) {
      listener.accept_now();
      std::this_thread::sleep_for(1ms);
    }
  });
  const auto alarm = [] { throw Aborted("rank 2 has failed"); };
  CHECK_THROWS_AS(
      connect_authenticated(listener.address(), JobKey::random(), Purpose::store, 0, deadline_after(10s), alarm),
      Aborted);
  ended = true;
  server.join();
}

TEST_CASE("accept keeps its deadline whatever keeps coming") {
  Port port;
  const FileDescriptor busy(eventfd(1, EFD_CLOEXEC));
  epoll_event event{.events = EPOLLIN, .data = {.u64 = 1 << 20}};
  REQUIRE(epoll_ctl(port.acceptor.fd(), EPOLL_CTL_ADD, busy.get(), &event) == 0);
  int asked = 0;
  const auto alarm = [&] {
    if (++asked == 4) throw Aborted("still waiting");
  };
  CHECK_THROWS_AS(port.acceptor.accept(deadline_after(5ms), "rank 2", alarm), Timeout);
}

TEST_CASE("a client that was stopped for so long that it was dropped proves itself anew") {
  const Log log("test", LogLevel::off);
  const JobKey key = JobKey::random();
  Listener listener = Listener::tcp("127.0.0.1");
  auto client = std::async(std::launch::async, [&, address = listener.address()] {
    return connect_authenticated(address, key, Purpose::store, 3, deadline_after(30s));
  });
  // As the acceptor would, which no test can wait for to be late.
  std::optional<Socket> first;
  while (!(first = listener.accept_now())) std::this_thread::sleep_for(1ms);
  std::this_thread::sleep_for(kProofTime + 50ms);
  first.reset();
  Acceptor acceptor(std::move(listener), key, Purpose::store, log);
  CHECK(acceptor.accept(deadline_after(10s), "rank 3").rank == 3);
  CHECK(client.get().fd() >= 0);
}

TEST_CASE("more clients at once than may be pending all come through") {
  constexpr std::size_t kClients = 180;
  const CapturedStderr captured;
  Port port;
  rlimit before{};
  REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
  const rlimit few{.rlim_cur = 512, .rlim_max = before.rlim_max};  // 128 may be pending
  REQUIRE(setrlimit(RLIMIT_NOFILE, &few) == 0);
  std::vector<std::future<Socket>> clients;
  for (std::size_t rank = 0; rank < kClients; ++rank) {
    clients.push_back(port.connect_later(port.key, Purpose::control, static_cast<int>(rank), 30s));
  }
  std::this_thread::sleep_for(200ms);  // all of them wait to be accepted
  std::vector<Peer> peers;
  while (peers.size() < kClients) peers.push_back(port.acceptor.accept(deadline_after(30s), "peers"));
  for (auto& client : clients) CHECK_NOTHROW(client.get());
  setrlimit(RLIMIT_NOFILE, &before);
}
