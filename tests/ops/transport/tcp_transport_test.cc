// What is particular to TCP: making the mesh, and a peer that does not keep to the protocol.
#include <atomic>
#include <cstring>
#include <future>
#include <sstream>
#include <string_view>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "core/bootstrap/store.h"
#include "ops/transport/tcp_transport.h"
#include "tests/support/catch.h"
#include "tests/support/failure.h"
#include "tests/support/transport_ranks.h"

using namespace hvd;
using namespace std::string_literals;
using namespace hvd::testing;

namespace {

// By rank, each on a host of its own.
std::vector<Topology> topologies_of(int size) {
  std::vector<RankIdentity> identities;
  for (int rank = 0; rank < size; ++rank) {
    const std::string host = "host-" + std::to_string(rank);
    identities.push_back({.host_key = host, .hostname = host});
  }
  std::vector<Topology> topologies;
  for (int rank = 0; rank < size; ++rank) topologies.push_back(make_topology(rank, identities));
  return topologies;
}

struct Job {
  MeshSetup setup(int rank, int size, Duration timeout, int sockets_per_peer = 1) {
    return setup(topologies.at(static_cast<std::size_t>(size))[static_cast<std::size_t>(rank)], timeout,
                 sockets_per_peer);
  }
  MeshSetup setup(const Topology& topology, Duration timeout, int sockets_per_peer = 1) {
    return {.topology = topology,
            .store = store,
            .job_key = key,
            .local_hosts = {"127.0.0.1"},
            .sockets_per_peer = sockets_per_peer,
            .log = log,
            .deadline = deadline_after(timeout)};
  }

  Store store;
  const JobKey key = JobKey::random();
  const Log log{"test", LogLevel::off};
  const AbortFlag abort;
  const std::vector<std::vector<Topology>> topologies{{}, topologies_of(1), topologies_of(2), topologies_of(3)};
};

template <typename Body>
Status status_of(const Body& body) {
  try {
    body();
    return {};
  } catch (...) {
    return current_exception_status();
  }
}

std::vector<std::byte> frame(const DataFrameHeader& header, std::string_view payload) {
  std::vector<std::byte> stream(sizeof header + payload.size());
  std::memcpy(stream.data(), &header, sizeof header);
  std::memcpy(stream.data() + sizeof header, payload.data(), payload.size());
  return stream;
}

constexpr Tag kTag{.process_set = 0, .step = 2, .sequence = 9};
constexpr DataFrameHeader kGood{.sender = 1, .process_set = 0, .step = 2, .sequence = 9, .length = 4};

// Rank 0 has a transport and expects four bytes from rank 1, which is a bare socket that sends `stream`, one byte at
// a time if so wished. Returns how rank 0 fares and the bytes it got.
std::pair<Status, std::string> receive_four_bytes(const std::vector<std::byte>& stream, bool bytewise) {
  Job job;
  std::thread peer([&] {
    auto sockets = connect_mesh(job.setup(1, 2, 10s));
    Socket& socket = sockets.at(0).front();
    const std::size_t step = bytewise ? 1 : stream.size();
    for (std::size_t at = 0; at < stream.size(); at += step) {
      socket.send_all(std::span(stream).subspan(at, step), deadline_after(10s), "rank 0");
    }
  });
  std::string received(4, '?');
  const Status status = status_of([&] {
    const auto transport = make_tcp_transport(job.setup(0, 2, 10s), {}, job.abort);
    const auto request = transport->post_receive(1, kTag, std::as_writable_bytes(std::span(received)));
    transport->wait(request, deadline_after(10s));
  });
  peer.join();
  return {status, received};
}

}  // namespace

TEST_CASE("the mesh connects each rank with all others") {
  Job job;
  std::atomic<int> connections{0};
  std::vector<std::thread> threads;
  for (const int rank : {0, 1, 2}) {
    threads.emplace_back([&, rank] {
      const auto sockets = connect_mesh(job.setup(rank, 3, 10s));
      connections += static_cast<int>(sockets.size());
      if (sockets.contains(rank)) connections += 100;
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(connections == 6);
}

TEST_CASE("a mesh of one needs nobody") {
  Job job;
  CHECK(connect_mesh(job.setup(0, 1, 0s)).empty());
}

TEST_CASE("ranks that do not come are named") {
  Job job;
  SECTION("higher ones, which should have connected") {
    const Status status = status_of([&] { connect_mesh(job.setup(0, 3, 50ms)); });
    CAPTURE(status.message());
    CHECK(status.code() == StatusCode::timeout);
    CHECK(has(status.message(), "rank 1 on host-1 (pid 0), rank 2 on host-2 (pid 0)"));
  }
  SECTION("lower ones, which should have published an address") {
    const Status status = status_of([&] { connect_mesh(job.setup(1, 2, 50ms)); });
    CAPTURE(status.message());
    CHECK(status.code() == StatusCode::timeout);
    CHECK(has(status.message(), "rank 0 on host-0"));
  }
  SECTION("and blamed by their numbers in the job") {
    std::vector<Topology> subset = topologies_of(2);
    for (Topology& topology : subset) topology.job_ranks = {2, 5};
    CHECK(status_of([&] { connect_mesh(job.setup(subset[1], 50ms)); }).culprit() == 2);
    CHECK(status_of([&] { connect_mesh(job.setup(subset[0], 50ms)); }).culprit() == 5);
  }
  SECTION("an address where nobody listens any more") {
    job.store.set("data/0", "1 tcp:127.0.0.1:1");
    const Status status = status_of([&] { connect_mesh(job.setup(1, 2, 50ms)); });
    CAPTURE(status.message());
    CHECK_FALSE(status.ok());
    CHECK(has(status.message(), "rank 0 on host-0"));
  }
}

TEST_CASE("a pair of ranks has as many sockets as the one that wants fewer, in the same order") {
  struct Case {
    int lower, higher, expected;
    std::vector<std::string> networks = {"127.0.0.1"};  // of the lower rank
  };
  for (const Case& c : {Case{1, 1, 1}, Case{4, 2, 2}, Case{3, 8, 3}, Case{64, 64, 64},
                        Case{1, 1, 2, {"127.0.0.1", "127.0.0.2"}}, Case{3, 2, 6, {"127.0.0.1", "127.0.0.2", "::1"}}}) {
    CAPTURE(c.lower, c.higher);
    Job job;
    std::vector<Socket> lower, higher;
    std::thread peer([&] { higher = std::move(connect_mesh(job.setup(1, 2, 10s, c.higher)).at(0)); });
    MeshSetup setup = job.setup(0, 2, 10s, c.lower);
    setup.local_hosts = c.networks;
    lower = std::move(connect_mesh(setup).at(1));
    peer.join();
    for (std::size_t i = 0; i < lower.size(); ++i) CHECK(lower[i].local_host() == c.networks[i % c.networks.size()]);
    REQUIRE(lower.size() == static_cast<std::size_t>(c.expected));
    REQUIRE(higher.size() == lower.size());
    for (std::size_t i = 0; i < lower.size(); ++i) {
      std::byte sent{static_cast<unsigned char>(i)}, received{};
      lower[i].send_all({&sent, 1}, deadline_after(10s), "rank 1");
      higher[i].receive_all({&received, 1}, deadline_after(10s), "rank 0");
      CHECK(received == sent);
    }
  }
}

TEST_CASE("a connection too many on one network does not take the place of one on another") {
  Job job;
  std::thread peer([&] {
    job.store.set("data/1", "1 tcp:127.0.0.1:1");
    std::istringstream offer(job.store.get("data/0", deadline_after(10s)));
    std::string sockets, first, second;
    offer >> sockets >> first >> second;
    std::vector<Socket> connections;
    for (const std::string& address : {first, first, second}) {
      connections.push_back(
          connect_authenticated(Address::parse(address), job.key, Purpose::data, 1, deadline_after(10s)));
    }
    const std::byte sent{7};
    connections[0].send_all({&sent, 1}, deadline_after(10s), "rank 0");
    connections[2].send_all({&sent, 1}, deadline_after(10s), "rank 0");
  });
  MeshSetup setup = job.setup(0, 2, 10s);
  setup.local_hosts = {"127.0.0.1", "127.0.0.2"};
  auto sockets = std::move(connect_mesh(setup).at(1));
  REQUIRE(sockets.size() == 2);
  for (std::size_t i = 0; i < sockets.size(); ++i) {
    CHECK(sockets[i].local_host() == setup.local_hosts[i]);
    std::byte received{};
    sockets[i].receive_all({&received, 1}, deadline_after(10s), "rank 1");
    CHECK(received == std::byte{7});
  }
  peer.join();
}

TEST_CASE("what a rank offers is not believed blindly") {
  std::string too_many_networks = "1";
  for (std::size_t i = 0; i <= kMaxNetworks; ++i) too_many_networks += " tcp:127.0.0.1:1";
  for (const std::string& offer :
       {std::string(), "tcp:127.0.0.1:1"s, "0 tcp:127.0.0.1:1"s, "-1 tcp:127.0.0.1:1"s, "65 tcp:127.0.0.1:1"s,
        "many tcp:127.0.0.1:1"s, "1 127.0.0.1"s, "1  "s, "1 tcp:127.0.0.1:1 tcp"s, too_many_networks}) {
    CAPTURE(offer);
    Job job;
    job.store.set("data/0", offer);
    const Status status = status_of([&] { connect_mesh(job.setup(1, 2, 10s)); });
    CAPTURE(status.message());
    CHECK(status.code() == StatusCode::invalid_argument);
    CHECK(has(status.message(), "rank 0 on host-0"));
  }
}

TEST_CASE("a message may come in any pieces") {
  const auto stream = frame(kGood, "abcd");
  for (const bool bytewise : {false, true}) {
    const auto [status, received] = receive_four_bytes(stream, bytewise);
    CAPTURE(bytewise, status.message());
    CHECK(status.ok());
    CHECK(received == "abcd");
  }
}

TEST_CASE("a wait goes on beyond its deadline while the peer's bytes move, if it is to") {
  constexpr Duration kInactivityTimeout = 2s;
  constexpr std::size_t kPieces = 60;
  Job job;
  std::promise<void> over;
  std::thread peer([&] {
    auto sockets = connect_mesh(job.setup(1, 2, 10s));
    DataFrameHeader header = kGood;
    header.length = kPieces;
    const auto stream = frame(header, std::string(kPieces, 'x'));
    for (std::size_t at = 0; at < stream.size(); ++at) {
      sockets.at(0).front().send_all(std::span(stream).subspan(at, 1), deadline_after(10s), "rank 0");
      if (at >= sizeof header) std::this_thread::sleep_for(10ms);
    }
    over.get_future().wait();
  });
  std::string received(kPieces, '?'), more(4, '?');
  TimePoint silent_since;
  const Status status = status_of([&] {
    const auto transport = make_tcp_transport(job.setup(0, 2, 10s), {}, job.abort, kInactivityTimeout);
    const auto first = transport->post_receive(1, kTag, std::as_writable_bytes(std::span(received)));
    transport->wait(first, deadline_after(10ms));
    silent_since = Clock::now();
    const auto second = transport->post_receive(1, kTag, std::as_writable_bytes(std::span(more)));
    transport->wait(second, deadline_after(10ms));
  });
  over.set_value();
  peer.join();
  CHECK(received == std::string(kPieces, 'x'));
  CHECK(status.code() == StatusCode::timeout);
  CHECK(Clock::now() - silent_since >= kInactivityTimeout);
}

TEST_CASE("keepalives before a message, and between messages, are no messages") {
  DataFrameHeader second = kGood;
  second.step = 3;
  second.length = 9;
  const auto keepalive = frame({.magic = DataFrameHeader::kKeepaliveMagic, .sender = 1}, "");
  std::vector<std::byte> stream;
  for (const auto& part : {keepalive, keepalive, frame(kGood, "abcd"), keepalive, frame(second, "123456789")}) {
    stream.insert(stream.end(), part.begin(), part.end());
  }
  const std::size_t step = GENERATE(1, 7, 40, 1000);
  CAPTURE(step);
  Job job;
  std::thread peer([&] {
    auto sockets = connect_mesh(job.setup(1, 2, 10s));
    for (std::size_t at = 0; at < stream.size(); at += step) {
      const auto part = std::span(stream).subspan(at, std::min(step, stream.size() - at));
      sockets.at(0).front().send_all(part, deadline_after(10s), "rank 0");
    }
  });
  std::string received(4, '?'), more(9, '?');
  const auto transport = make_tcp_transport(job.setup(0, 2, 10s), {}, job.abort);
  const auto one = transport->post_receive(1, kTag, std::as_writable_bytes(std::span(received)));
  Tag tag = kTag;
  tag.step = 3;
  const auto two = transport->post_receive(1, tag, std::as_writable_bytes(std::span(more)));
  peer.join();  // all of it may be read with one call
  transport->wait(one, deadline_after(10s));
  transport->wait(two, deadline_after(10s));
  CHECK(received == "abcd");
  CHECK(more == "123456789");
}

TEST_CASE("of ranks that wait for each other the last one of the chain gives up first") {
  constexpr Duration kInactivityTimeout = 2s;
  Job job;
  AbortFlag of_first;
  std::promise<void> over;
  std::shared_future<void> end = over.get_future().share();
  std::thread silent([&] {
    const auto sockets = connect_mesh(job.setup(1, 3, 10s));
    end.wait();
  });
  Status status_of_second;
  std::thread second([&] {  // waits for rank 1, and begins later than rank 0
    const auto transport = make_tcp_transport(job.setup(2, 3, 10s), {}, job.abort, kInactivityTimeout);
    status_of_second = status_of([&] {
      std::this_thread::sleep_for(kInactivityTimeout / 4);
      std::string data(4, '?');
      const auto request = transport->post_receive(1, kTag, std::as_writable_bytes(std::span(data)));
      transport->wait(request, deadline_after(10ms));
    });
    of_first.raise(status_of_second);
    end.wait();
  });
  const Status status_of_first = status_of([&] {
    const auto transport = make_tcp_transport(job.setup(0, 3, 10s), {}, of_first, kInactivityTimeout);
    std::string data(4, '?');
    const auto request = transport->post_receive(2, kTag, std::as_writable_bytes(std::span(data)));
    transport->wait(request, deadline_after(10ms));
  });
  over.set_value();
  silent.join();
  second.join();
  CHECK(status_of_second.code() == StatusCode::timeout);
  CHECK(has(status_of_second.message(), "rank 1"));
  CHECK(status_of_first.message() == status_of_second.message());
}

TEST_CASE("what was sent arrives even if the sender leaves at once and has not read a keepalive") {
  constexpr Duration kInactivityTimeout = 400ms;
  Job job;
  std::string data(4 << 20, '?');
  std::thread sender([&] {
    const std::string sent(data.size(), 'x');
    const auto transport = make_tcp_transport(job.setup(1, 2, 10s), {}, job.abort, kInactivityTimeout);
    std::this_thread::sleep_for(kInactivityTimeout * 3 / 4);  // the other one has waited for half of it
    transport->wait(transport->post_send(0, kTag, std::as_bytes(std::span(sent))), deadline_after(10s));
  });
  const Status status = status_of([&] {
    const auto transport = make_tcp_transport(job.setup(0, 2, 10s), {}, job.abort, kInactivityTimeout);
    const auto request = transport->post_receive(1, kTag, std::as_writable_bytes(std::span(data)));
    transport->wait(request, deadline_after(10s));
  });
  sender.join();
  CAPTURE(status.message());
  CHECK(status.ok());
  CHECK(data == std::string(data.size(), 'x'));
}

TEST_CASE("a keepalive to a peer that has left is no error") {
  constexpr Duration kInactivityTimeout = 400ms;
  Job job;
  std::promise<void> over;
  std::thread gone([&] { connect_mesh(job.setup(1, 3, 10s)); });
  std::thread late([&] {
    auto sockets = connect_mesh(job.setup(2, 3, 10s));
    DataFrameHeader header = kGood;
    header.sender = 2;
    std::this_thread::sleep_for(kInactivityTimeout * 3 / 4);
    sockets.at(0).front().send_all(frame(header, "abcd"), deadline_after(10s), "rank 0");
    over.get_future().wait();
  });
  std::string data(4, '?');
  const Status status = status_of([&] {
    const auto transport = make_tcp_transport(job.setup(0, 3, 10s), {}, job.abort, kInactivityTimeout);
    gone.join();
    for (int wait = 0; wait < 2; ++wait) {  // the first keepalive finds out that nobody is there, the second fails
      const auto request = transport->post_receive(2, kTag, std::as_writable_bytes(std::span(data)));
      transport->wait(request, deadline_after(wait == 0 ? Duration(10s) : Duration(1s)));
    }
  });
  over.set_value();
  late.join();
  CHECK(data == "abcd");
  CHECK(status.code() == StatusCode::timeout);
  CHECK(has(status.message(), "rank 2"));
}

TEST_CASE("a peer that does not keep to the protocol is an error and no more") {
  struct Case {
    const char* what;
    DataFrameHeader header;
    const char* said;
  };
  DataFrameHeader no_magic = kGood, wrong_sender = kGood, huge = kGood, wrong_set = kGood;
  no_magic.magic = 0x20544547;
  wrong_sender.sender = 7;
  huge.length = ~std::uint64_t{0};
  wrong_set.process_set = 5;
  const Case cases[] = {
      {"no magic", no_magic, "no message"},
      {"another rank's name", wrong_sender, "says that it is rank 7"},
      {"a length beyond all memory", huge, "18446744073709551615 bytes"},
      {"another process set", wrong_set, "process set 5"},
  };
  for (const Case& c : cases) {
    const auto stream = frame(c.header, "abcdefgh");
    const auto [status, received] = receive_four_bytes(stream, false);
    CAPTURE(c.what, status.message());
    CHECK(status.code() == StatusCode::internal);
    CHECK(has(status.message(), c.said));
    CHECK(has(status.message(), "rank 1 on host-1"));
  }
}

TEST_CASE("a connection that ends inside a message is a lost peer") {
  const auto whole = frame(kGood, "abcd");
  for (const std::size_t length : {std::size_t{0}, std::size_t{1}, std::size_t{31}, std::size_t{32}, std::size_t{35}}) {
    const auto [status, received] =
        receive_four_bytes({whole.begin(), whole.begin() + static_cast<long>(length)}, true);
    CAPTURE(length, status.message());
    CHECK(status.code() == StatusCode::peer_lost);
  }
}

TEST_CASE("every way of waiting delivers") {
  for (const WaitPolicy policy : {WaitPolicy{}, WaitPolicy{.spin = 1ms}, WaitPolicy{.yields = 64}}) {
    run_all_well({.kind = TransportKind::tcp, .size = 2, .policy = policy}, [](std::unique_ptr<Transport> transport) {
      std::uint64_t counter = 0;
      const auto bytes = std::as_writable_bytes(std::span(&counter, 1));
      for (std::uint32_t round = 0; round < 200; ++round) {
        const Tag tag{.step = round};
        if (transport->rank() == static_cast<int>(round % 2)) {
          ++counter;
          transport->wait(transport->post_send(1 - transport->rank(), tag, bytes), deadline_after(20s));
        } else {
          transport->wait(transport->post_receive(1 - transport->rank(), tag, bytes), deadline_after(20s));
        }
      }
      if (counter != 200) throw Internal("lost count: " + std::to_string(counter));
    });
  }
}
