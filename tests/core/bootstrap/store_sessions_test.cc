#include "core/bootstrap/store_sessions.h"

#include <memory>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "core/net/frame.h"
#include "tests/core/bootstrap/expect_closed.h"
#include "tests/support/captured_stderr.h"
#include "tests/support/catch.h"

using namespace hvd;

namespace {

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
  std::unique_ptr<StoreSessions> sessions = std::make_unique<StoreSessions>(key, "127.0.0.1", source, log);

  // As an event loop would; false if nothing happens for so long.
  bool turn(Duration timeout = 10s) {
    if (!wait_ready(sessions->fd(), false, deadline_after(timeout))) return false;
    sessions->serve_now();
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
  Socket socket;
  std::thread thread(
      [&] { socket = connect_authenticated(sessions->address(), key, Purpose::store, 3, deadline_after(10s)); });
  while (turn(200ms)) {
  }
  thread.join();
  return socket;
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

}  // namespace

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

TEST_CASE("sessions that end forget what they asked") {
  SlowlyServed served;
  Socket socket = served.client();
  served.ask(socket, {.id = 1, .operation = StoreOperation::get, .key = "k"});
  served.sessions.reset();
  CHECK(served.source.forgotten.back() == 1);
  expect_closed(socket);
}

TEST_CASE("a impostor that says nothing is dropped in time, by the descriptor alone") {
  const CapturedStderr captured;
  SlowlyServed served;
  Socket impostor = Socket::connect(served.sessions->address(), deadline_after(10s));
  REQUIRE(served.turn());
  const TimePoint start = Clock::now();
  while (captured.count("did not prove itself in time") == 0 && Clock::now() < start + 5s) served.turn(5s);
  CHECK(captured.count("did not prove itself in time") == 1);
  CHECK_FALSE(served.turn(20ms));  // nothing more to wake up for
}
