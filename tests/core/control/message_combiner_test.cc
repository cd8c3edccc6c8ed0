#include "core/control/tree/message_combiner.h"

#include "core/base/error.h"
#include "tests/core/control/specs.h"
#include "tests/core/control/times.h"
#include "tests/support/catch.h"

using namespace hvd;

namespace {

// A host of ranks 0 to 2, and a subtree of ranks 3 to 8.
MessageCombiner three_ranks_and_a_subtree() {
  return MessageCombiner({{0, RankSet(0)}, {1, RankSet(1)}, {2, RankSet(2)}, {3, RankSet(3, 9)}}, kDelay);
}

SubtreeMessage message_of(RankSet ranks, std::vector<SharedRequest> requests, std::uint64_t applied = 0) {
  SubtreeMessage message{.applied_by_all = applied};
  message.messages.push_back({.ranks = std::move(ranks), .applied = applied, .latest = applied});
  message.messages.front().requests = std::move(requests);
  return message;
}

MessageCombiner::Released receive(MessageCombiner& message_combiner, int source, const SubtreeMessage& message,
                                  bool idle = true) {
  return message_combiner.receive(source, encode(message), idle, kStart);
}

bool nothing(const MessageCombiner::Released& released) { return released.individual.empty() && !released.combined; }

std::vector<int> sources_of(const MessageCombiner::Released& released) {
  std::vector<int> sources;
  for (const auto& [source, message] : released.individual) sources.push_back(source);
  return sources;
}

}  // namespace

TEST_CASE("Identical messages of all sources are released as one") {
  MessageCombiner message_combiner = three_ranks_and_a_subtree();
  CHECK(nothing(receive(message_combiner, 3, message_of(RankSet(3, 9), {allreduce("x"), allreduce("y")}, 7))));
  CHECK(nothing(receive(message_combiner, 0, message_of(RankSet(0), {allreduce("x"), allreduce("y")}, 7))));
  CHECK(nothing(receive(message_combiner, 2, message_of(RankSet(2), {allreduce("x"), allreduce("y")}, 7))));
  SubtreeMessage last = message_of(RankSet(1), {allreduce("x"), allreduce("y")}, 7);
  last.applied_by_all = 6;
  const auto released = receive(message_combiner, 1, last);
  CHECK(released.individual.empty());
  REQUIRE(released.combined);
  SubtreeMessage expected = message_of(RankSet(0, 9), {allreduce("x"), allreduce("y")}, 7);
  expected.applied_by_all = 6;
  CHECK(decode_subtree_message(*released.combined) == expected);
  CHECK(released.applied_by_all == 6);
  CHECK(message_combiner.next_deadline() == Deadline::max());
}

TEST_CASE("Some may be ahead of others, as long as all send the same one after the other") {
  MessageCombiner message_combiner = three_ranks_and_a_subtree();
  for (const int source : {0, 1, 2}) {
    CHECK(nothing(receive(message_combiner, source, message_of(RankSet(source), {allreduce("x")}))));
    CHECK(nothing(receive(message_combiner, source, message_of(RankSet(source), {allreduce("y")}))));
  }
  const auto first = receive(message_combiner, 3, message_of(RankSet(3, 9), {allreduce("x")}));
  REQUIRE(first.combined);
  CHECK(decode_subtree_message(*first.combined) == message_of(RankSet(0, 9), {allreduce("x")}));
  const auto second = receive(message_combiner, 3, message_of(RankSet(3, 9), {allreduce("y")}));
  REQUIRE(second.combined);
  CHECK(decode_subtree_message(*second.combined) == message_of(RankSet(0, 9), {allreduce("y")}));
}

TEST_CASE("After a message that differs, all are released individually") {
  MessageCombiner message_combiner = three_ranks_and_a_subtree();
  receive(message_combiner, 1, message_of(RankSet(1), {allreduce("x")}));
  receive(message_combiner, 1, message_of(RankSet(1), {allreduce("y")}));
  receive(message_combiner, 3, message_of(RankSet(3, 9), {allreduce("x")}));
  SubtreeMessage other;
  SECTION("another name") { other = message_of(RankSet(0), {allreduce("z")}); }
  SECTION("another shape") { other = message_of(RankSet(0), {allreduce("x", {9})}); }
  SECTION("the same in another number of messages") {
    other = message_of(RankSet(0), {allreduce("x"), allreduce("y")});
  }
  SECTION("the same after another message") { other = message_of(RankSet(0), {allreduce("x")}, 1); }
  SECTION("that it leaves") {
    other = message_of(RankSet(0), {allreduce("x")});
    other.messages.front().shut_down = true;
  }
  const auto released = receive(message_combiner, 0, other);
  CHECK_FALSE(released.combined);
  CHECK(sources_of(released) == std::vector{1, 3, 1, 0});
  CHECK(released.individual[0].second == message_of(RankSet(1), {allreduce("x")}));
  CHECK(released.individual[1].second == message_of(RankSet(3, 9), {allreduce("x")}));
  CHECK(released.individual[2].second == message_of(RankSet(1), {allreduce("y")}));
  CHECK(released.individual[3].second == other);
  CHECK(message_combiner.next_deadline() == Deadline::max());
}

TEST_CASE("Nothing is held that others may not send") {
  MessageCombiner message_combiner = three_ranks_and_a_subtree();
  SubtreeMessage message;
  bool idle = true;
  SECTION("a join") { message = message_of(RankSet(1), {join()}); }
  SECTION("sizes of its own") { message = message_of(RankSet(1), {allgather("x", {2})}); }
  SECTION("of a part of the subtree") { message = message_of(RankSet(3, 5), {allreduce("x")}); }
  SECTION("for somebody else") { message = message_of(RankSet(2), {allreduce("x")}); }
  SECTION("while the reader waits for others") {
    message = message_of(RankSet(1), {allreduce("x")});
    idle = false;
  }
  const int source = message.messages.front().ranks == RankSet(3, 5) ? 3 : 1;
  const auto released = receive(message_combiner, source, message, idle);
  CHECK(sources_of(released) == std::vector{source});
  CHECK(released.individual.front().second == message);
}

TEST_CASE("Nothing is held for longer than the delay") {
  MessageCombiner message_combiner = three_ranks_and_a_subtree();
  receive(message_combiner, 1, message_of(RankSet(1), {allreduce("x")}));
  CHECK(message_combiner.next_deadline() == kStart + kDelay);
  CHECK(nothing(message_combiner.take(kStart + kDelay - 1ns)));
  CHECK(sources_of(message_combiner.take(kStart + kDelay)) == std::vector{1});
  CHECK(message_combiner.next_deadline() == Deadline::max());
}

TEST_CASE("What cannot be decoded is refused by the first that reads it") {
  MessageCombiner message_combiner = three_ranks_and_a_subtree();
  Bytes bytes = encode(message_of(RankSet(1), {allreduce("x")}));
  bytes.pop_back();
  CHECK_THROWS_AS(message_combiner.receive(1, bytes, true, kStart), Internal);
}
