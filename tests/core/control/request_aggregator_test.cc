#include "core/control/tree/request_aggregator.h"

#include "core/base/error.h"
#include "core/control/control_node.h"
#include "tests/core/control/specs.h"
#include "tests/core/control/times.h"
#include "tests/support/catch.h"

using namespace hvd;

namespace {

// Rank 2 with a rank 3 on its host, and below it rank 4, which sends for 4 to 6.
struct Node {
  Node() : request_aggregator({{2, RankSet(2)}, {3, RankSet(3)}, {4, RankSet(4, 7)}}, kDelay, describe_test_rank) {}

  void ask(int rank, OperationSpec spec) { say(rank, {.applied = number, .requests = {std::move(spec)}}); }
  void hit(int rank, std::uint32_t slot) { say(rank, {.applied = number, .hits = {slot}}); }
  void say(int rank, const RankMessage& message) { request_aggregator.receive(rank, sent_by(rank, message), now); }

  // Child 4 for its whole subtree.
  void say_all_below(RankMessage message) {
    message.ranks = RankSet(4, 7);
    message.applied = message.latest = number;
    SubtreeMessage whole{.applied_by_all = number};
    whole.messages.push_back(std::move(message));
    request_aggregator.receive(4, std::move(whole), now);
  }

  void executed(const std::string& name, std::uint32_t slot) {
    Response response;
    response.spec = allreduce(name);
    response.slot = slot;
    observe({kNoSlot, response});
  }
  void observe(ResponseList::Entry entry) {
    ResponseList message;
    message.number = ++number;
    message.entries.push_back(std::move(entry));
    request_aggregator.observe(message);
  }

  std::vector<RankMessage> up() {
    auto message = request_aggregator.take(now);
    return message ? message->messages : std::vector<RankMessage>{};
  }

  RequestAggregator request_aggregator;
  TimePoint now = kStart;
  std::uint64_t number = 0;
};

// For a ControlNode that sends nothing.
struct NoPort {
  static void send(int, const Bytes&) { throw Internal("something was sent"); }
  static void perform(NodeWork, auto body) { body(); }
  static void read(NodeWork, const SubtreeMessage&) {}
};

}  // namespace

TEST_CASE("What all of a subtree ask for goes up as one request") {
  Node node;
  for (const char* name : {"a", "b"}) {
    node.ask(2, allreduce(name));
    node.ask(3, allreduce(name));
  }
  CHECK(node.up().empty());
  node.say_all_below({.requests = {allreduce("a"), allreduce("b")}});
  const auto up = node.up();
  REQUIRE(up.size() == 1);
  CHECK(up[0].ranks == RankSet(2, 7));
  CHECK(up[0].requests == std::vector<SharedRequest>{allreduce("a"), allreduce("b")});
  CHECK(node.up().empty());
}

TEST_CASE("Sizes that differ by rank go up as parts of one request") {
  Node node;
  node.ask(3, allgather("g", {3, 2}));
  node.ask(2, allgather("g", {2, 2}));
  SharedRequest below(allgather("g", {4, 2}));
  below.parts = {{{4}, {}}, {{5}, {}}, {{6}, {}}};
  node.say_all_below({.requests = {below}});
  const auto up = node.up();
  REQUIRE(up.size() == 1);
  REQUIRE(up[0].requests.size() == 1);
  const SharedRequest& request = up[0].requests.front();
  CHECK(request.spec == allgather("g", {2, 2}));
  REQUIRE(request.parts.size() == 5);
  for (std::int64_t i = 0; i < 5; ++i)
    CHECK(request.parts[static_cast<std::size_t>(i)].first_dimensions.front() == i + 2);
}

TEST_CASE("Ranks that disagree are complete together, each with its own request") {
  Node node;
  node.ask(2, allreduce("x"));
  node.ask(3, allreduce("x", {7}));
  node.say_all_below({.requests = {allreduce("x")}});
  const auto up = node.up();
  REQUIRE(up.size() == 2);
  CHECK(up[0].ranks.to_vector() == std::vector<int>{2, 4, 5, 6});
  CHECK(up[1].ranks == RankSet(3));
  CHECK(up[1].requests.front() == allreduce("x", {7}));
}

TEST_CASE("Hits are combined, also beside the request of a rank whose operation has changed") {
  Node node;
  node.executed("x", 5);
  node.hit(2, 5);
  node.ask(3, allreduce("x", {7}));
  CHECK(node.up().empty());
  node.say_all_below({.hits = {5}});
  const auto up = node.up();
  REQUIRE(up.size() == 2);
  CHECK(up[0].hits == std::vector<std::uint32_t>{5});
  CHECK(up[0].ranks.count() == 4);
  CHECK(up[1].requests.size() == 1);
}

TEST_CASE("A hit on what a slot held before goes up as it is") {
  Node node;
  node.executed("x", 5);
  node.executed("y", 5);
  node.say(3, {.applied = 1, .hits = {5}});
  const auto up = node.up();
  REQUIRE(up.size() == 1);
  CHECK(up[0].applied == 1);
  CHECK(up[0].ranks == RankSet(3));
}

TEST_CASE("Hits that are held back go up before the slot gets another meaning") {
  Node node;
  node.executed("x", 5);
  node.hit(2, 5);
  node.executed("y", 5);
  const auto up = node.up();
  REQUIRE(up.size() == 1);
  CHECK(up[0].applied == 1);
}

TEST_CASE("What waits for others goes up after the delay, and the rest when it comes") {
  Node node;
  node.ask(2, allreduce("x"));
  CHECK(node.request_aggregator.next_deadline() == kStart + kDelay);
  node.now += kDelay;
  auto up = node.up();
  REQUIRE(up.size() == 1);
  CHECK(up[0].ranks == RankSet(2));
  CHECK(node.request_aggregator.next_deadline() == Deadline::max());
  node.ask(3, allreduce("x"));
  node.say_all_below({.requests = {allreduce("x")}});
  up = node.up();
  REQUIRE(up.size() == 1);
  CHECK(up[0].ranks == RankSet(3, 7));
}

TEST_CASE("Who asks again after an error opens a new negotiation") {
  Node node;
  node.ask(2, allreduce("x"));
  node.now += kDelay;
  CHECK(node.up().size() == 1);
  Response error;
  error.kind = Response::Kind::error;
  error.spec.name = "x";
  error.status = Status(StatusCode::mismatch, "no");
  error.ranks = {2};
  node.observe({kNoSlot, error});
  node.ask(2, allreduce("x", {9}));
  node.ask(3, allreduce("x", {9}));
  CHECK(node.up().empty());
  node.say_all_below({.requests = {allreduce("x", {9})}});
  const auto up = node.up();
  REQUIRE(up.size() == 1);
  CHECK(up[0].ranks == RankSet(2, 7));
}

TEST_CASE("A join goes up at once, behind what the rank has asked for, and is not waited for any more") {
  Node node;
  node.ask(3, allreduce("x"));
  node.ask(3, join());
  auto up = node.up();
  REQUIRE(up.size() == 2);
  CHECK(up[0].requests.front() == allreduce("x"));
  CHECK(up[1].requests.front() == join());
  node.ask(2, allreduce("y"));
  node.say_all_below({.requests = {allreduce("y")}});
  up = node.up();
  REQUIRE(up.size() == 1);
  CHECK(up[0].ranks.to_vector() == std::vector<int>{2, 4, 5, 6});
}

TEST_CASE("A rank that leaves is told of at once, with everything that is held") {
  Node node;
  node.ask(2, allreduce("x"));
  node.say(3, {.applied = 0, .shut_down = true});
  const auto up = node.up();
  REQUIRE(up.size() == 2);
  CHECK(up[0].ranks == RankSet(2));
  CHECK(up[1].shut_down);
}

TEST_CASE("A schedule that is locked voids what was asked for before") {
  Node node;
  node.executed("x", 5);
  node.hit(2, 5);
  Response lock;
  lock.kind = Response::Kind::lock;
  lock.schedule = {{5}};
  node.observe({kNoSlot, lock});
  node.say(3, {.applied = 1, .hits = {5}});
  node.now += kDelay;
  CHECK(node.up().empty());
  for (const int rank : {2, 3}) node.hit(rank, 5);
  node.say_all_below({.hits = {5}});
  const auto up = node.up();
  REQUIRE(up.size() == 1);
  CHECK(up[0].applied == 2);
  CHECK(up[0].ranks == RankSet(2, 7));
}

TEST_CASE("A child that speaks for others is refused") {
  Node node;
  SubtreeMessage message = sent_by(3, {.hits = {0}});
  CHECK_THROWS_AS(node.request_aggregator.receive(2, message, kStart), Internal);
  CHECK_THROWS_AS(node.request_aggregator.receive(9, message, kStart), Internal);
}

TEST_CASE("A name whose slot is given away while it is held back is complete when the rest has asked") {
  Node node;
  node.executed("x", 5);
  node.hit(2, 5);
  node.executed("y", 5);
  CHECK(node.up().size() == 1);
  node.ask(3, allreduce("x"));
  node.say(4, {.applied = 1, .hits = {5}});  // has not heard of it yet
  CHECK(node.up().size() == 1);
  for (int rank : {5, 6}) {
    RankMessage message{.ranks = RankSet(rank), .applied = 2, .latest = 2};
    message.requests.emplace_back(allreduce("x"));
    SubtreeMessage whole{.applied_by_all = 1};
    whole.messages.push_back(message);
    node.request_aggregator.receive(4, whole, node.now);
  }
  CHECK(node.up().size() >= 1);
  CHECK(node.up().empty());
}

TEST_CASE("A join that is given up ends for the ranks that are told so") {
  Node node;
  for (const int rank : {2, 3}) node.ask(rank, join());
  CHECK_FALSE(node.up().empty());
  Response given_up;
  given_up.kind = Response::Kind::error;
  given_up.spec.name = join().name;
  given_up.ranks = {0, 2};
  node.observe({kNoSlot, given_up});
  node.say_all_below({.requests = {allreduce("x")}});  // rank 3 has joined, and rank 2 not any more
  CHECK(node.up().empty());
  node.ask(2, allreduce("x"));
  auto up = node.up();
  REQUIRE(up.size() == 1);
  CHECK(up[0].ranks.to_vector() == std::vector<int>{2, 4, 5, 6});
  given_up.ranks = {3};
  node.observe({kNoSlot, given_up});
  node.say_all_below({.requests = {allreduce("x")}});
  node.ask(2, allreduce("x"));
  CHECK(node.up().empty());
  node.ask(3, allreduce("x"));
  up = node.up();
  REQUIRE(up.size() == 1);
  CHECK(up[0].ranks == RankSet(2, 7));
}

TEST_CASE("A rank that leaves while its join ends takes nothing back") {
  Node node;
  for (int rank : {2, 3}) node.ask(rank, join());
  node.say_all_below({.requests = {join()}});
  CHECK_FALSE(node.up().empty());
  Response joined;
  joined.kind = Response::Kind::all_joined;
  joined.spec.name = "join";
  node.observe({kNoSlot, joined});
  node.ask(2, allreduce("x"));
  node.now += kDelay;
  const auto first = node.request_aggregator.take(node.now);
  REQUIRE(first);
  node.say(3, {.applied = 0, .shut_down = true});
  const auto second = node.request_aggregator.take(node.now);
  REQUIRE(second);
  CHECK(second->applied_by_all >= first->applied_by_all);
}

TEST_CASE("A child that says it has applied what there is not is named") {
  Node node;
  CHECK_THROWS_WITH(node.request_aggregator.receive(3, sent_by(3, {.applied = 1}), kStart),
                    Catch::Matchers::Contains("rank 3"));
  SubtreeMessage message = sent_by(3, {});
  message.messages.front().latest = 1;
  CHECK_THROWS_AS(node.request_aggregator.receive(3, message, kStart), Internal);
}

TEST_CASE("A node names the child that it refuses as the coordinator would") {
  NoPort port;
  ControlNode node(2, {.parent = 0, .children = {{3, RankSet(3)}}, .depth = 1}, {}, describe_test_rank);
  const Bytes message = encode(sent_by(3, {.applied = 1, .shut_down = true}));
  CHECK_THROWS_WITH(node.receive(port, 3, message, kStart),
                    Catch::Matchers::StartsWith("rank 3 on host-d breaks the protocol: it "));
}
