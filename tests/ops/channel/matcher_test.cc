// Which message goes to which receive.
#include "ops/channel/matcher.h"

#include "tests/support/catch.h"

namespace hvd::testing {

namespace {

Arrival arrival(int source, std::int64_t tag, std::uint64_t number, std::uint64_t channel = 0) {
  return {.source = source, .channel = channel, .tag = tag, .length = number};
}

Transfer wanted(int source, std::int64_t tag, std::size_t number, std::uint64_t channel = 0) {
  static std::byte anything[16];
  return {.message = {.peer = source, .channel = channel, .tag = tag, .memory = {anything, number}}, .operation = {}};
}

// The receive's number; -1: there is none.
int take_receive(Matcher& matcher, int source, std::int64_t tag, std::uint64_t channel = 0) {
  const auto taken = matcher.take_receive(source, channel, tag);
  return taken ? static_cast<int>(taken->message.memory.size()) : -1;
}

int take_arrival(Matcher& matcher, int source, std::int64_t tag, std::uint64_t channel = 0) {
  const auto taken = matcher.take_arrival(source, channel, tag);
  return taken ? static_cast<int>(taken->length) : -1;
}

}  // namespace

TEST_CASE("messages are taken in their order, by source, tag and channel") {
  Matcher matcher;
  matcher.keep(arrival(1, 0, 10));
  matcher.keep(arrival(1, 0, 11));
  matcher.keep(arrival(2, 0, 20));
  matcher.keep(arrival(1, 5, 15));
  matcher.keep(arrival(1, 0, 90, 9));
  CHECK(take_arrival(matcher, 3, 0) == -1);
  CHECK(take_arrival(matcher, 1, 1) == -1);
  CHECK(take_arrival(matcher, 1, 5) == 15);
  CHECK(take_arrival(matcher, 2, 0) == 20);
  CHECK(take_arrival(matcher, 1, 0) == 10);
  CHECK(take_arrival(matcher, 1, 0) == 11);
  CHECK(take_arrival(matcher, 1, 0) == -1);
  CHECK(take_arrival(matcher, 1, 0, 9) == 90);
  CHECK_FALSE(matcher.has_arrivals());
}

TEST_CASE("whoever receives from any rank gets what came first") {
  Matcher matcher;
  matcher.keep(arrival(7, 0, 70));
  matcher.keep(arrival(2, 1, 21));
  matcher.keep(arrival(2, 0, 20));
  matcher.keep(arrival(7, 0, 71));
  CHECK(take_arrival(matcher, kAnyRank, 0) == 70);
  CHECK(take_arrival(matcher, kAnyRank, 0) == 20);
  CHECK(take_arrival(matcher, kAnyRank, 0) == 71);
  CHECK(take_arrival(matcher, kAnyRank, 0) == -1);
  CHECK(take_arrival(matcher, kAnyRank, 0, 1) == -1);
  CHECK(take_arrival(matcher, kAnyRank, 1) == 21);
}

TEST_CASE("a message goes to the first receive that it suits, named or not") {
  Matcher matcher;
  matcher.keep(wanted(1, 0, 1));
  matcher.keep(wanted(kAnyRank, 0, 2));
  matcher.keep(wanted(1, 0, 3));
  matcher.keep(wanted(kAnyRank, 4, 4));
  CHECK(take_receive(matcher, 2, 1) == -1);
  CHECK(take_receive(matcher, 1, 0) == 1);
  CHECK(take_receive(matcher, 1, 0) == 2);
  CHECK(take_receive(matcher, 2, 0) == -1);
  CHECK(take_receive(matcher, 1, 0) == 3);
  CHECK(take_receive(matcher, 1, 4, 1) == -1);
  CHECK(take_receive(matcher, 8, 4) == 4);
  CHECK_FALSE(matcher.has_receives());
}

TEST_CASE("what a lost rank leaves behind can be told apart") {
  Matcher matcher;
  matcher.keep(arrival(1, 0, 10));
  Arrival offered = arrival(1, 0, 11);
  offered.offer = 3;
  matcher.keep(std::move(offered));
  matcher.keep(wanted(1, 1, 5));
  matcher.keep(wanted(2, 1, 6));
  matcher.drop_offers_from(1);
  CHECK(take_arrival(matcher, 1, 0) == 10);
  CHECK_FALSE(matcher.has_arrivals());
  const auto lost = matcher.take_receives([](const Transfer& receive) { return receive.message.peer == 1; });
  REQUIRE(lost.size() == 1);
  CHECK(lost.front().message.memory.size() == 5);
  CHECK(take_receive(matcher, 2, 1) == 6);
}

}  // namespace hvd::testing
