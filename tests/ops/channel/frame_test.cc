// What a rank may say about messages, and what it may not.
#include "ops/channel/connection.h"

#include <sys/socket.h>

#include <array>
#include <memory>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "ops/channel/links.h"
#include "tests/support/catch.h"

namespace hvd::testing {

namespace {

using Kind = MessageFrame::Kind;

MessageFrame there_and_back(const MessageFrame& frame, Direction direction) {
  return parse_message_frame(to_bytes(frame), direction);
}

std::array<Socket, 2> connected_sockets() {
  int ends[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
  return {Socket(FileDescriptor(ends[0])), Socket(FileDescriptor(ends[1]))};
}

// A link from rank 1, whose frames the test writes.
class LinkFromPeer {
 public:
  LinkFromPeer() : LinkFromPeer(connected_sockets()) { say({.kind = Kind::hello}); }

  void say(const MessageFrame& frame, std::size_t payload_bytes = 0) {
    std::vector<std::byte> bytes(payload_bytes);
    const auto header = to_bytes(frame);
    bytes.insert(bytes.begin(), header.begin(), header.end());
    REQUIRE(peer_.send_some(bytes) == bytes.size());
  }

  void receive(std::int64_t tag, std::size_t bytes) {
    static std::byte memory[64];
    matcher.keep(Transfer{.message = {.peer = 1, .tag = tag, .memory = {memory, bytes}},
                          .operation = make_message_operation(std::make_shared<Metrics>()).engine});
  }

  Matcher matcher;
  IncomingLink link;

 private:
  explicit LinkFromPeer(std::array<Socket, 2> ends)
      : link({.rank = 1, .description = "rank 1", .same_host = false}, std::move(ends[0]), matcher),
        peer_(std::move(ends[1])) {}

  Socket peer_;
};

}  // namespace

TEST_CASE("a frame for messages comes out as it went in, in its direction only") {
  const auto [kind, direction] = GENERATE(table<Kind, Direction>({{Kind::hello, Direction::to_receiver},
                                                                  {Kind::message, Direction::to_receiver},
                                                                  {Kind::offer, Direction::to_receiver},
                                                                  {Kind::data, Direction::to_receiver},
                                                                  {Kind::credit, Direction::to_sender},
                                                                  {Kind::refused, Direction::to_sender}}));
  const MessageFrame frame{
      .kind = kind, .channel = UINT64_MAX, .tag = INT64_MIN, .id = 3, .length = kEagerBytes, .address = 7};
  CHECK(there_and_back(frame, direction) == frame);
  const Direction other = direction == Direction::to_sender ? Direction::to_receiver : Direction::to_sender;
  CHECK_THROWS_AS(there_and_back(frame, other), Internal);
}

TEST_CASE("a frame for messages that makes no sense is refused") {
  const auto [frame, direction] = GENERATE(table<MessageFrame, Direction>(
      {{{.magic = 0, .kind = Kind::hello}, Direction::to_receiver},
       {{.kind = Kind{0}}, Direction::to_receiver},
       {{.kind = Kind{9}}, Direction::to_sender},
       {{.kind = Kind{UINT32_MAX}}, Direction::to_sender},
       {{.kind = Kind::message, .length = kEagerBytes + 1}, Direction::to_receiver},
       {{.kind = Kind::offer, .length = (std::uint64_t{1} << 48) + 1}, Direction::to_receiver},
       {{.kind = Kind::data, .length = UINT64_MAX}, Direction::to_receiver},
       {{.kind = Kind::credit, .length = kMessageCredit + 1}, Direction::to_sender},
       {{.kind = Kind::fetch, .length = 1}, Direction::to_sender},
       {{.kind = Kind::taken, .length = 1}, Direction::to_sender}}));
  CHECK_THROWS_AS(there_and_back(frame, direction), Internal);
}

TEST_CASE("a second open offer of one number is refused before it takes a receive") {
  const bool posted_first = GENERATE(true, false);
  LinkFromPeer peer;
  for (const std::int64_t tag : {1, 2}) {
    if (posted_first) peer.receive(tag, 8);
    peer.say({.kind = Kind::offer, .tag = tag, .id = 7, .length = 8});
  }
  CHECK_THROWS_AS(peer.link.advance(), Internal);
  CHECK(peer.link.take_pending().size() == (posted_first ? 1 : 0));
  CHECK(peer.matcher.has_receives() == posted_first);
}

TEST_CASE("the number of an offer that was answered may be used again") {
  LinkFromPeer peer;
  const auto offer = [&](std::uint64_t length, std::size_t room) {
    peer.receive(0, room);
    peer.say({.kind = Kind::offer, .id = 7, .length = length});
  };
  offer(0, 0);  // taken
  offer(8, 9);  // refused
  offer(8, 8);  // fetched
  peer.say({.kind = Kind::data, .id = 7, .length = 8}, 8);
  offer(8, 8);
  CHECK(peer.link.advance());
  CHECK(peer.link.is_fetching());
}

}  // namespace hvd::testing
