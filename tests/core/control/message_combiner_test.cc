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

SubtreeMessage said(RankSet ranks, std::vector<SharedRequest> requests, std::uint64_t applied = 0) {
  SubtreeMessage message{.applied_by_all = applied};
  message.messages.push_back({.ranks = std::move(ranks), .applied = applied, .latest = applied});
  message.messages.front().requests = std::move(requests);
  return message;
}

MessageCombiner::Heard hear(MessageCombiner& message_combiner, int source, const SubtreeMessage& message,
                            bool idle = true) {
  return message_combiner.receive(source, encode(message), idle, kStart);
}

bool nothing(const MessageCombiner::Heard& heard) { return heard.apart.empty() && !heard.together; }

std::vector<int> sources_of(const MessageCombiner::Heard& heard) {
  std::vector<int> sources;
  for (const auto& [source, message] : heard.apart) sources.push_back(source);
  return sources;
}

}  // namespace

TEST_CASE("What all say alike is heard once") {
  MessageCombiner message_combiner = three_ranks_and_a_subtree();
  CHECK(nothing(hear(message_combiner, 3, said(RankSet(3, 9), {allreduce("x"), allreduce("y")}, 7))));
  CHECK(nothing(hear(message_combiner, 0, said(RankSet(0), {allreduce("x"), allreduce("y")}, 7))));
  CHECK(nothing(hear(message_combiner, 2, said(RankSet(2), {allreduce("x"), allreduce("y")}, 7))));
  SubtreeMessage last = said(RankSet(1), {allreduce("x"), allreduce("y")}, 7);
  last.applied_by_all = 6;
  const auto heard = hear(message_combiner, 1, last);
  CHECK(heard.apart.empty());
  REQUIRE(heard.together);
  SubtreeMessage expected = said(RankSet(0, 9), {allreduce("x"), allreduce("y")}, 7);
  expected.applied_by_all = 6;
  CHECK(decode_subtree_message(*heard.together) == expected);
  CHECK(heard.applied_by_all == 6);
  CHECK(message_combiner.next_deadline() == Deadline::max());
}

TEST_CASE("Some may be ahead of others, as long as all say the same one after the other") {
  MessageCombiner message_combiner = three_ranks_and_a_subtree();
  for (const int source : {0, 1, 2}) {
    CHECK(nothing(hear(message_combiner, source, said(RankSet(source), {allreduce("x")}))));
    CHECK(nothing(hear(message_combiner, source, said(RankSet(source), {allreduce("y")}))));
  }
  const auto first = hear(message_combiner, 3, said(RankSet(3, 9), {allreduce("x")}));
  REQUIRE(first.together);
  CHECK(decode_subtree_message(*first.together) == said(RankSet(0, 9), {allreduce("x")}));
  const auto second = hear(message_combiner, 3, said(RankSet(3, 9), {allreduce("y")}));
  REQUIRE(second.together);
  CHECK(decode_subtree_message(*second.together) == said(RankSet(0, 9), {allreduce("y")}));
}

TEST_CASE("Once somebody says something else, everybody is heard as they spoke") {
  MessageCombiner message_combiner = three_ranks_and_a_subtree();
  hear(message_combiner, 1, said(RankSet(1), {allreduce("x")}));
  hear(message_combiner, 1, said(RankSet(1), {allreduce("y")}));
  hear(message_combiner, 3, said(RankSet(3, 9), {allreduce("x")}));
  SubtreeMessage other;
  SECTION("another name") { other = said(RankSet(0), {allreduce("z")}); }
  SECTION("another shape") { other = said(RankSet(0), {allreduce("x", {9})}); }
  SECTION("the same in another number of messages") { other = said(RankSet(0), {allreduce("x"), allreduce("y")}); }
  SECTION("the same after another message") { other = said(RankSet(0), {allreduce("x")}, 1); }
  SECTION("that it leaves") {
    other = said(RankSet(0), {allreduce("x")});
    other.messages.front().shut_down = true;
  }
  const auto heard = hear(message_combiner, 0, other);
  CHECK_FALSE(heard.together);
  CHECK(sources_of(heard) == std::vector{1, 3, 1, 0});
  CHECK(heard.apart[0].second == said(RankSet(1), {allreduce("x")}));
  CHECK(heard.apart[1].second == said(RankSet(3, 9), {allreduce("x")}));
  CHECK(heard.apart[2].second == said(RankSet(1), {allreduce("y")}));
  CHECK(heard.apart[3].second == other);
  CHECK(message_combiner.next_deadline() == Deadline::max());
}

TEST_CASE("Nothing is held that others may not say") {
  MessageCombiner message_combiner = three_ranks_and_a_subtree();
  SubtreeMessage message;
  bool idle = true;
  SECTION("a join") { message = said(RankSet(1), {join()}); }
  SECTION("sizes of its own") { message = said(RankSet(1), {allgather("x", {2})}); }
  SECTION("of a part of the subtree") { message = said(RankSet(3, 5), {allreduce("x")}); }
  SECTION("for somebody else") { message = said(RankSet(2), {allreduce("x")}); }
  SECTION("while the reader waits for others") {
    message = said(RankSet(1), {allreduce("x")});
    idle = false;
  }
  const int source = message.messages.front().ranks == RankSet(3, 5) ? 3 : 1;
  const auto heard = hear(message_combiner, source, message, idle);
  CHECK(sources_of(heard) == std::vector{source});
  CHECK(heard.apart.front().second == message);
}

TEST_CASE("Nothing is held for longer than the delay") {
  MessageCombiner message_combiner = three_ranks_and_a_subtree();
  hear(message_combiner, 1, said(RankSet(1), {allreduce("x")}));
  CHECK(message_combiner.next_deadline() == kStart + kDelay);
  CHECK(nothing(message_combiner.take(kStart + kDelay - 1ns)));
  CHECK(sources_of(message_combiner.take(kStart + kDelay)) == std::vector{1});
  CHECK(message_combiner.next_deadline() == Deadline::max());
}

TEST_CASE("What cannot be read is refused by the first that hears it") {
  MessageCombiner message_combiner = three_ranks_and_a_subtree();
  Bytes bytes = encode(said(RankSet(1), {allreduce("x")}));
  bytes.pop_back();
  CHECK_THROWS_AS(message_combiner.receive(1, bytes, true, kStart), Internal);
}
