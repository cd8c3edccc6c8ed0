// What a rank may say about messages, and what it may not.
#include "ops/channel/connection.h"

#include <string>

#include "core/base/error.h"
#include "tests/support/catch.h"

namespace hvd::testing {

namespace {

using Kind = MessageFrame::Kind;

MessageFrame there_and_back(const MessageFrame& frame, Direction direction) {
  return parse_message_frame(to_bytes(frame), direction);
}

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

}  // namespace hvd::testing
