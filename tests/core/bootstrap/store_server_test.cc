#include "core/bootstrap/store_server.h"

#include <future>
#include <memory>
#include <vector>

#include "core/base/error.h"
#include "core/bootstrap/store.h"
#include "core/bootstrap/store_protocol.h"
#include "core/net/frame.h"
#include "tests/support/captured_stderr.h"
#include "tests/support/catch.h"
#include "tests/support/timeouts.h"

using namespace hvd;

namespace {

struct Served {
  Log log{"test", LogLevel::warning};
  JobKey key = JobKey::random();
  std::unique_ptr<StoreServerThread> server = std::make_unique<StoreServerThread>(key, "127.0.0.1", log);

  Store client(int rank = 0) const { return Store::connect(server->address(), key, rank, deadline_after(10s)); }
  Socket raw_client(int rank = 0) const {
    return connect_authenticated(server->address(), key, Purpose::store, rank, deadline_after(10s));
  }
};

// Answers when the test says so.
struct SlowSource : StoreSource {
  RequestId ask(StoreRequest, Answer answer) override {
    answers.push_back(std::move(answer));
    return answers.size();
  }
  void forget(RequestId id) override { forgotten.push_back(id); }

  std::vector<Answer> answers;
  std::vector<RequestId> forgotten;
};

struct SlowlyServed {
  Log log{"test", LogLevel::warning};
  JobKey key = JobKey::random();
  SlowSource source;
  std::unique_ptr<StoreServer> server = std::make_unique<StoreServer>(key, "127.0.0.1", source, log);

  // As an event loop would; false if nothing happens for so long.
  bool turn(Duration timeout = 10s) {
    if (!wait_ready(server->fd(), false, deadline_after(timeout))) return false;
    server->serve_now();
    return true;
  }
  Socket client();
  void ask(Socket& socket, const StoreRequest& request) {
    socket.send_all(make_frame(encode_store_request(request)), deadline_after(10s), "the store");
    const std::size_t asked = source.answers.size();
    while (source.answers.size() == asked) REQUIRE(turn());
  }
};

Socket SlowlyServed::client() {
  auto connecting = std::async(std::launch::async, [&] {
    return connect_authenticated(server->address(), key, Purpose::store, 3, deadline_after(10s));
  });
  while (connecting.wait_for(0s) != std::future_status::ready) turn(10ms);
  while (turn(20ms)) {
  }
  return connecting.get();
}

StoreAnswer receive(Socket& socket) {
  FrameReader reader;
  Bytes one(1);
  while (true) {
    if (auto message = reader.next()) return parse_store_answer(*message);
    socket.receive_all(one, deadline_after(10s), "the store");
    reader.feed(one);
  }
}

// Nothing more comes, not even one byte.
void expect_closed(Socket& socket) {
  Bytes one(1);
  CHECK_THROWS_AS(socket.receive_all(one, deadline_after(10s), "the store"), PeerLost);
}

}  // namespace

TEST_CASE("a server that goes away is PeerLost, at once and from then on", "[timed]") {
  Served served;
  auto store = served.client();
  store.set("key", "value");
  auto waiter = std::async(std::launch::async, [&] { return store.get("never", deadline_after(30s)); });
  CHECK(waiter.wait_for(20ms) == std::future_status::timeout);
  const TimePoint start = Clock::now();
  served.server.reset();
  CHECK_THROWS_AS(waiter.get(), PeerLost);
  CHECK(Clock::now() - start < testing::at_most(2s));
  CHECK_THROWS_AS(store.get("key", deadline_after(30s)), PeerLost);
  CHECK_THROWS_AS(store.set("key", "other"), PeerLost);
  CHECK_THROWS_AS(store.add("n", 1), PeerLost);
}

TEST_CASE("a wrong key gets nowhere") {
  const CapturedStderr captured;
  Served served;
  auto store = served.client();
  for (int i = 0; i < 3; ++i) {
    CHECK_THROWS_AS(Store::connect(served.server->address(), JobKey::random(), 1, deadline_after(10s)), PeerLost);
  }
  store.set("key", "value");
  CHECK(store.get("key", deadline_after(10s)) == "value");
  served.server.reset();
  CHECK(captured.count("does not know the job's key") == 1);
}

TEST_CASE("garbage before the proof changes nothing") {
  const CapturedStderr captured;
  Served served;
  auto store = served.client();
  store.set("key", "value");
  const Bytes garbage(200'000, std::byte{'G'});
  std::vector<Socket> strangers;
  for (int i = 0; i < 10; ++i) {
    strangers.push_back(Socket::connect(served.server->address(), deadline_after(10s)));
    strangers.back().send_some(garbage);
  }
  CHECK(store.get("key", deadline_after(10s)) == "value");
  CHECK(served.client(1).add("n", 1) == 1);
  served.server.reset();
  CHECK(captured.count("dropped a connection") == 1);
}

TEST_CASE("a client that breaks the protocol is dropped alone") {
  const CapturedStderr captured;
  Served served;
  auto store = served.client();
  Socket broken = served.raw_client(3);
  SECTION("no frame") { broken.send_all(Bytes(100, std::byte{'G'}), deadline_after(10s), "the store"); }
  SECTION("a frame with nonsense") {
    broken.send_all(make_frame(Bytes(100, std::byte{'G'})), deadline_after(10s), "the store");
  }
  SECTION("an empty frame") { broken.send_all(make_frame({}), deadline_after(10s), "the store"); }
  SECTION("a frame longer than allowed") {
    ByteWriter header;
    header.put(kFrameMagic);
    header.put(static_cast<std::uint32_t>(kMaxStoreFrameBytes + 1));
    broken.send_all(header.take(), deadline_after(10s), "the store");
  }
  expect_closed(broken);
  store.set("key", "value");
  CHECK(store.get("key", deadline_after(10s)) == "value");
  served.server.reset();
  CHECK(captured.count("drops rank 3") == 1);
}

TEST_CASE("a refused request leaves the client connected") {
  Served served;
  Socket raw = served.raw_client();
  const StoreRequest too_long{
      .id = 9, .operation = StoreOperation::get, .key = std::string(kMaxStoreKeyBytes + 1, 'k')};
  raw.send_all(make_frame(encode_store_request(too_long)), deadline_after(10s), "the store");
  FrameReader reader;
  std::optional<Bytes> message;
  while (!(message = reader.next())) {
    Bytes one(1);
    raw.receive_all(one, deadline_after(10s), "the store");
    reader.feed(one);
  }
  const StoreAnswer answer = parse_store_answer(*message);
  CHECK(answer.id == 9);
  CHECK(answer.code == StatusCode::invalid_argument);
}

TEST_CASE("requests in pieces and in a heap are served alike") {
  Served served;
  Socket raw = served.raw_client();
  Bytes stream;
  for (std::uint32_t id = 1; id <= 20; ++id) {
    const Bytes frame =
        make_frame(encode_store_request({.id = id, .operation = StoreOperation::add, .key = "n", .amount = 1}));
    stream.insert(stream.end(), frame.begin(), frame.end());
  }
  const std::size_t piece = GENERATE(std::size_t{1}, std::size_t{1000});
  for (std::size_t at = 0; at < stream.size(); at += piece) {
    raw.send_all(std::span(stream).subspan(at, std::min(piece, stream.size() - at)), deadline_after(10s), "the store");
  }
  CHECK([&] {
    auto store = served.client(1);
    std::int64_t seen = 0;
    const Deadline deadline = deadline_after(10s);
    while (seen < 20 && Clock::now() < deadline) seen = store.add("n", 0);
    return seen;
  }() == 20);
}

TEST_CASE("a client that does not read is not served further, and delays nobody") {
  Served served;
  auto store = served.client();
  store.set("large", std::string(1 << 20, 'x'));
  Socket lazy = served.raw_client(1);
  Bytes requests;
  for (std::uint32_t id = 1; id <= 24; ++id) {
    const Bytes frame = make_frame(encode_store_request({.id = id, .operation = StoreOperation::get, .key = "large"}));
    requests.insert(requests.end(), frame.begin(), frame.end());
  }
  lazy.send_all(requests, deadline_after(10s), "the store");
  CHECK(store.add("n", 1) == 1);

  // Once it reads, all its answers come.
  FrameReader reader;
  Bytes piece(1 << 16);
  for (std::uint32_t answers = 0; answers < 24;) {
    REQUIRE(wait_ready(lazy.fd(), false, deadline_after(10s)));
    const auto count = lazy.receive_some(piece);
    REQUIRE(count);
    reader.feed(std::span(piece).first(*count));
    while (auto message = reader.next()) CHECK(parse_store_answer(*message).id == ++answers);
  }
}

TEST_CASE("clients that leave while they wait are forgotten") {
  Served served;
  auto store = served.client();
  for (int i = 0; i < 10; ++i) {
    auto leaver = served.client(1);
    CHECK_THROWS_AS(leaver.get("late", deadline_after(2ms)), Timeout);
  }
  store.set("late", "value");
  CHECK(store.get("late", deadline_after(10s)) == "value");
}

TEST_CASE("servers come and go") {
  for (int i = 0; i < 20; ++i) {
    Served served;
    CHECK(served.client().add("n", 1) == 1);
  }
  const Log log("test", LogLevel::warning);
  CHECK_THROWS_AS(StoreServerThread(JobKey::random(), "203.0.113.1", log), InvalidArgument);
}

TEST_CASE("an answer that comes later is sent in the client's next turn") {
  SlowlyServed served;
  Socket socket = served.client();
  served.ask(socket, {.id = 7, .operation = StoreOperation::add, .key = "n", .amount = 1});
  served.source.answers[0](StatusCode::ok, "1");
  CHECK(served.turn());
  CHECK(receive(socket) == StoreAnswer{.id = 7, .text = "1"});
  CHECK_FALSE(served.turn(20ms));
}

TEST_CASE("who asks on forgets its get, but may not forget its set") {
  const CapturedStderr captured;
  {
    SlowlyServed served;
    Socket socket = served.client();
    served.ask(socket, {.id = 1, .operation = StoreOperation::get, .key = "k"});
    served.ask(socket, {.id = 2, .operation = StoreOperation::set, .key = "k"});
    CHECK(served.source.forgotten.back() == 1);
    socket.send_all(make_frame(encode_store_request({.id = 3, .key = "k"})), deadline_after(10s), "the store");
    REQUIRE(served.turn());
    expect_closed(socket);
    CHECK(served.source.answers.size() == 2);
    CHECK(served.source.forgotten.back() == 2);
  }
  CHECK(captured.count("drops rank 3: it asks on while its request is under way") == 1);
}

TEST_CASE("clients of a lost store lose their connections, without a word for each") {
  const CapturedStderr captured;
  {
    SlowlyServed served;
    Socket socket = served.client();
    served.ask(socket, {.id = 1, .operation = StoreOperation::get, .key = "k"});
    served.source.answers[0](StatusCode::peer_lost, "the parent is gone");
    REQUIRE(served.turn());
    expect_closed(socket);
  }
  CHECK(captured.count("drops") == 0);
}

TEST_CASE("a server that ends forgets what was asked") {
  SlowlyServed served;
  Socket socket = served.client();
  served.ask(socket, {.id = 1, .operation = StoreOperation::get, .key = "k"});
  served.server.reset();
  CHECK(served.source.forgotten.back() == 1);
  expect_closed(socket);
}

TEST_CASE("a impostor that says nothing is dropped in time, by the descriptor alone") {
  const CapturedStderr captured;
  SlowlyServed served;
  Socket impostor = Socket::connect(served.server->address(), deadline_after(10s));
  REQUIRE(served.turn());
  const TimePoint start = Clock::now();
  while (captured.count("did not prove itself in time") == 0 && Clock::now() < start + 5s) served.turn(5s);
  CHECK(captured.count("did not prove itself in time") == 1);
  CHECK_FALSE(served.turn(20ms));  // nothing more to wake up for
}
