#include "core/control/coordinator/coordinator.h"

#include <algorithm>
#include <numeric>

#include "core/base/error.h"
#include "tests/core/control/specs.h"
#include "tests/core/control/times.h"
#include "tests/support/catch.h"

using namespace hvd;
using Catch::Matchers::Contains;

namespace {

// A coordinator, and ranks that have always applied every message that was sent.
struct Job {
  explicit Job(const CoordinatorOptions& options) : coordinator(options, describe_test_rank) {}
  explicit Job(int size, std::size_t cache_capacity = 16, Duration limit = 0s, BatchingPolicy batching = {})
      : coordinator({.size = size,
                     .cache_capacity = cache_capacity,
                     .stall_check = true,
                     .stall_warning = 10s,
                     .stall_limit = limit,
                     .batching = batching},
                    describe_test_rank) {}

  void ask(int rank, OperationSpec spec) { send(rank, {.applied = number, .hits = {}, .requests = {std::move(spec)}}); }
  void hit(int rank, std::uint32_t slot) { send(rank, {.applied = number, .hits = {slot}, .requests = {}}); }
  void leave(int rank) { send(rank, {.applied = number, .hits = {}, .requests = {}, .shut_down = true}); }
  void send(int rank, const RankMessage& message) { coordinator.receive(rank, sent_by(rank, message), now); }

  std::vector<ResponseList::Entry> next_entries() {
    auto message = coordinator.respond(now);
    if (!message) return {};
    CHECK(message->number == ++number);
    warnings = message->warnings;
    return message->entries;
  }
  // The one entry that is due.
  ResponseList::Entry next_entry() {
    auto entries = next_entries();
    REQUIRE(entries.size() == 1);
    return entries.front();
  }
  Response response() {
    auto entry = next_entry();
    REQUIRE(entry.response);
    return *entry.response;
  }
  bool silent() { return next_entries().empty(); }

  void expect_error(const std::string& name, const std::vector<std::int32_t>& ranks, const std::string& text) {
    const Response error = response();
    CHECK(error.kind == Response::Kind::error);
    CHECK(error.spec.name == name);
    CHECK(error.ranks == ranks);
    CHECK(error.status.code() == StatusCode::mismatch);
    CHECK_THAT(error.status.message(), Contains(text));
  }
  void expect_execute(const OperationSpec& spec) {
    const Response execute = response();
    CHECK(execute.kind == Response::Kind::execute);
    CHECK(execute.spec == spec);
  }

  Coordinator coordinator;
  TimePoint now = kStart;
  std::uint64_t number = 0;
  std::vector<std::string> warnings;
};

}  // namespace

TEST_CASE("An operation executes once the last rank has asked, in the order of readiness") {
  Job job(3);
  CHECK(job.silent());
  job.ask(0, allreduce("a"));
  job.ask(0, allreduce("b"));
  job.ask(1, allreduce("b"));
  job.ask(1, allreduce("a"));
  CHECK(job.silent());
  job.ask(2, allreduce("b"));
  job.ask(2, allreduce("a"));
  const auto entries = job.next_entries();
  REQUIRE(entries.size() == 2);
  CHECK(entries[0].response->spec == allreduce("b"));
  CHECK(entries[1].response->spec == allreduce("a"));
  CHECK(entries[0].response->slot != entries[1].response->slot);
  CHECK(job.silent());
}

TEST_CASE("A burst is answered as one, after tens of microseconds at most") {
  Job job(2, 16, 0s, {.coalescing = 30us});
  job.ask(0, allreduce("a"));
  job.ask(0, allreduce("b"));
  job.ask(1, allreduce("a"));
  CHECK(job.silent());
  CHECK(job.coordinator.next_deadline() == kStart + 30us);
  SECTION("all of it") {
    job.now += 10us;
    job.ask(1, allreduce("b"));
    CHECK(job.next_entries().size() == 2);
  }
  SECTION("or what has come until then") {
    job.now += 30us;
    job.expect_execute(allreduce("a"));
    CHECK(job.coordinator.next_deadline() == kStart + 10s);
    job.ask(1, allreduce("b"));
    job.expect_execute(allreduce("b"));
  }
  SECTION("before a rank leaves") {
    job.leave(1);
    const auto entries = job.next_entries();
    REQUIRE(entries.size() == 2);
    CHECK(entries[0].response->spec == allreduce("a"));
    CHECK(entries[1].response->kind == Response::Kind::shut_down);
  }
  SECTION("before a join ends") {
    job.ask(1, allreduce("b"));
    job.ask(0, join());
    job.ask(1, join());
    const auto entries = job.next_entries();
    REQUIRE(entries.size() == 3);
    CHECK(entries[2].response->kind == Response::Kind::all_joined);
  }
}

TEST_CASE("What is urgent goes before what became ready earlier") {
  Job job(2, 16, 0s, {.bucket_bytes = 24});
  const auto urgent = [](const char* name, std::int32_t priority) {
    OperationSpec spec = allreduce(name);
    spec.priority = priority;
    return spec;
  };
  for (const OperationSpec& spec : {urgent("a", 1), urgent("b", 0), urgent("c", 2)}) {
    job.ask(0, spec);
    job.ask(1, spec);
  }
  job.expect_execute(urgent("c", 2));
  CHECK(job.coordinator.next_deadline() == TimePoint::min());
  for (int rank : {0, 1}) job.ask(rank, urgent("d", 3));
  job.expect_execute(urgent("d", 3));
  job.expect_execute(urgent("a", 1));
  job.expect_execute(urgent("b", 0));
  CHECK(job.silent());
}

TEST_CASE("Knobs go to all ranks with the next response list") {
  Job job(1);
  const Knobs knobs{.fusion_threshold_bytes = 5, .coalescing_us = 7};
  job.coordinator.tune(knobs);
  CHECK(job.silent());
  job.ask(0, allreduce("a"));
  CHECK(job.coordinator.respond(job.now)->knobs == knobs);
  ++job.number;
  job.ask(0, allreduce("b"));
  CHECK_FALSE(job.coordinator.respond(job.now)->knobs);
}

TEST_CASE("Rows are by rank, and the request is the lowest rank's") {
  Job job(2);
  job.ask(1, allgather("g", {5, 2}));
  job.ask(0, allgather("g", {0, 2}));
  const Response gather = job.response();
  CHECK(gather.spec == allgather("g", {0, 2}));
  CHECK(gather.rows == std::vector<std::vector<std::int64_t>>{{0, 5}});

  job.ask(0, alltoall("a", {1, 2}));
  job.ask(1, alltoall("a", {3, 4}));
  CHECK(job.response().rows == std::vector<std::vector<std::int64_t>>{{1, 2}, {3, 4}});
}

TEST_CASE("What all ranks repeat is answered with its slot, whatever the collective") {
  const OperationSpec first[] = {allreduce("x"),        allgather("x", {1, 2}), broadcast("x", 1),
                                 alltoall("x", {1, 2}), barrier("x"),           reducescatter("x", {4, 2})};
  for (OperationSpec spec : first) {
    CAPTURE(collective_name(spec.collective));
    Job job(2);
    job.ask(0, spec);
    if (spec.collective == Collective::allgather) spec.tensors[0].shape[0] = 6;
    job.ask(1, spec);
    const std::uint32_t slot = job.response().slot;
    for (int step = 0; step < 3; ++step) {
      job.hit(1, slot);
      CHECK(job.silent());
      job.hit(0, slot);
      CHECK(job.next_entry() == ResponseList::Entry{slot, std::nullopt});
    }
  }
}

TEST_CASE("A rank that changes its rows gives a new response in the same slot") {
  Job job(2);
  job.ask(0, allgather("g", {1}));
  job.ask(1, allgather("g", {2}));
  const std::uint32_t slot = job.response().slot;
  const bool hit_first = GENERATE(true, false);
  if (hit_first) job.hit(0, slot);
  job.ask(1, allgather("g", {7}));
  if (!hit_first) job.hit(0, slot);
  const Response changed = job.response();
  CHECK(changed.slot == slot);
  CHECK(changed.rows == std::vector<std::vector<std::int64_t>>{{1, 7}});
  job.hit(0, slot);
  job.hit(1, slot);
  CHECK(job.next_entry().cached_slot == slot);
}

TEST_CASE("Without a cache every response is whole") {
  Job job(1, 0);
  for (int step = 0; step < 2; ++step) {
    job.ask(0, allreduce("x"));
    CHECK(job.response().slot == kNoSlot);
  }
}

TEST_CASE("A hit in flight while its slot is given away still means the old operation") {
  Job job(2, 1);
  job.ask(0, allreduce("x"));
  job.ask(1, allreduce("x"));
  REQUIRE(job.response().slot == 0);
  const std::uint64_t before = job.number;
  job.ask(0, allreduce("y", {9}));
  job.ask(1, allreduce("y", {9}));
  REQUIRE(job.response().slot == 0);

  job.ask(0, allreduce("x"));
  SECTION("and agrees with full requests of the others") {
    job.send(1, {.applied = job.number, .hits = {}, .requests = {allreduce("y", {9})}});
    CHECK(job.silent());
    CHECK_THROWS_WITH(job.send(1, {.applied = before, .hits = {0}, .requests = {}}), Contains("rank 1 on host-b"));
  }
  SECTION("before anything newer came from that rank") {
    Job other(2, 1);
    other.ask(0, allreduce("x"));
    other.ask(1, allreduce("x"));
    REQUIRE(other.response().slot == 0);
    const std::uint64_t old = other.number;
    other.ask(0, allreduce("y", {9}));
    other.ask(0, allreduce("x"));
    // One message: a request that gives the slot to y, and later a hit that was sent before the answer came.
    other.send(1, {.applied = old, .hits = {}, .requests = {allreduce("y", {9})}});
    CHECK(other.response().spec == allreduce("y", {9}));
    other.send(1, {.applied = old, .hits = {0}, .requests = {}});
    other.expect_execute(allreduce("x"));
  }
}

TEST_CASE("An operation that waits keeps its slot; the next one evicts another or goes without") {
  Job job(2, 2);
  for (const char* name : {"x", "y"}) {
    job.ask(0, allreduce(name));
    job.ask(1, allreduce(name));
    job.next_entry();
  }
  job.hit(0, 0);  // x waits for rank 1, and was used longest ago
  job.ask(0, allreduce("z"));
  job.ask(1, allreduce("z"));
  CHECK(job.response().slot == 1);
  job.hit(0, 1);  // now z waits too
  job.ask(0, allreduce("w"));
  job.ask(1, allreduce("w"));
  CHECK(job.response().slot == kNoSlot);
  job.hit(1, 0);
  CHECK(job.next_entry().cached_slot == 0);
}

TEST_CASE("A disagreement fails at once on those that have asked, and later with the same text on the others") {
  std::vector<int> order(4);
  std::iota(order.begin(), order.end(), 0);
  do {
    for (int odd = 0; odd < 4; ++odd) {
      Job job(4);
      std::vector<std::string> texts(4);
      for (const int rank : order) {
        job.ask(rank, allreduce("x", {rank == odd ? 7 : 2}));
        for (const auto& entry : job.next_entries()) {
          REQUIRE(entry.response->kind == Response::Kind::error);
          for (const int answered : entry.response->ranks) {
            CHECK(texts[static_cast<std::size_t>(answered)].empty());
            texts[static_cast<std::size_t>(answered)] = entry.response->status.message();
          }
        }
      }
      for (const std::string& text : texts) CHECK(text == texts[0]);
      CHECK_THAT(texts[0], Contains(describe_test_rank(odd)) && Contains("[7]") && Contains("[2]"));
      for (const int rank : order) job.ask(rank, allreduce("x", {3}));
      job.expect_execute(allreduce("x", {3}));
    }
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("A fast rank may retry before a slow one has heard of the failure") {
  Job job(3);
  job.ask(0, allreduce("x", {1}));
  job.ask(1, allreduce("x", {2}));
  job.expect_error("x", {0, 1}, "[1]");
  job.ask(0, allreduce("x", {3}));
  job.ask(1, allreduce("x", {3}));
  CHECK(job.silent());
  job.ask(2, allreduce("x", {1}));
  job.expect_error("x", {2}, "[1]");  // the retries are not touched
  job.ask(2, allreduce("x", {3}));
  job.expect_execute(allreduce("x", {3}));
}

TEST_CASE("Failures of several negotiations are delivered oldest first") {
  Job job(3);
  for (int round = 1; round <= 2; ++round) {
    job.ask(0, allreduce("x", {round}));
    job.ask(1, allreduce("x", {100 + round}));
    job.expect_error("x", {0, 1}, "[10" + std::to_string(round) + "]");
  }
  job.ask(2, allreduce("x", {3}));
  job.expect_error("x", {2}, "[101]");
  job.ask(2, allreduce("x", {3}));
  job.expect_error("x", {2}, "[102]");
  for (int rank = 2; rank >= 0; --rank) job.ask(rank, allreduce("x", {3}));
  job.expect_execute(allreduce("x", {3}));
}

TEST_CASE("Hits take part in disagreements, and get pending failures too") {
  Job job(3);
  for (int rank = 0; rank < 3; ++rank) job.ask(rank, allreduce("x", {2}));
  const std::uint32_t slot = job.response().slot;
  job.hit(0, slot);
  job.ask(1, allreduce("x", {5}));
  job.expect_error("x", {0, 1}, "rank 0 on host-a has shape [2], but rank 1 on host-b shape [5]");
  job.hit(0, slot);
  job.hit(2, slot);
  job.expect_error("x", {2}, "[5]");
  job.hit(1, slot);
  CHECK(job.silent());
  job.hit(2, slot);
  CHECK(job.next_entry().response->spec == allreduce("x", {2}));  // not all came by hit alone
  for (int rank = 0; rank < 3; ++rank) job.hit(rank, slot);
  CHECK(job.next_entry().cached_slot == slot);
}

TEST_CASE("A request that is wrong by itself fails its negotiation") {
  Job job(2);
  job.ask(1, allgather("g", {}));
  job.expect_error("g", {1}, "rank 1 on host-b brings a tensor of no dimensions");
  job.ask(0, allgather("g", {}));
  job.expect_error("g", {0}, "rank 1 on host-b");
  job.ask(0, broadcast("b", 2));
  job.expect_error("b", {0}, "root rank 2");
}

TEST_CASE("A result that nobody could hold is an error for all") {
  Job job(2);
  const std::int64_t huge = std::int64_t{1} << 60;
  job.ask(0, allgather("g", {huge}));
  job.ask(1, allgather("g", {huge}));
  job.expect_error("g", {0, 1}, "2^63");
}

TEST_CASE("Operations whose rows do not fit a message fail, alone or together, and others do not") {
  Job job({.size = 2, .max_row_bytes = 100});  // an alltoall of two ranks takes 40
  const auto ask = [&](const OperationSpec& spec) {
    for (int rank = 0; rank < 2; ++rank) job.ask(rank, spec);
  };
  for (const char* name : {"a", "b", "c"}) ask(alltoall(name, {1, 2}));
  auto answers = job.next_entries();
  REQUIRE(answers.size() == 3);
  CHECK(answers[0].response->kind == Response::Kind::execute);
  CHECK(answers[1].response->kind == Response::Kind::execute);
  CHECK(answers[2].response->kind == Response::Kind::error);
  CHECK(answers[2].response->status.code() == StatusCode::unsupported);
  CHECK_THAT(answers[2].response->status.message(), Contains("alltoall 'c'") && Contains("120 bytes; at most 100"));
  OperationSpec many = allgather("many", {1});
  many.tensors.resize(6, many.tensors.front());
  ask(many);
  CHECK(job.response().status.code() == StatusCode::unsupported);
  ask(alltoall("c", {1, 2}));
  CHECK(job.response().kind == Response::Kind::execute);
}

TEST_CASE("What has a counted name does not come again, and gets no slot") {
  Job job(2);
  for (const char* name : {"unnamed.1", "unnamed.after.1", "unnamed", "unnamed.x"}) {
    for (int rank = 0; rank < 2; ++rank) job.ask(rank, allreduce(name));
    CHECK((job.response().slot == kNoSlot) == (std::string(name) == "unnamed.1"));
  }
}

TEST_CASE("A joined rank counts as ready") {
  Job job(3);
  job.ask(0, allreduce("x"));
  job.ask(1, allreduce("x"));
  job.ask(2, join());
  CHECK(job.response().kind == Response::Kind::execute);
  job.ask(0, barrier("b"));
  job.ask(1, barrier("b"));
  job.expect_execute(barrier("b"));
  job.ask(0, join());
  CHECK(job.silent());
  job.ask(1, allreduce("y"));
  job.expect_execute(allreduce("y"));
  job.ask(1, join());
  const Response joined = job.response();
  CHECK(joined.kind == Response::Kind::all_joined);
  CHECK(joined.rank == 1);
}

TEST_CASE("What is done without a joined rank is answered whole, and leaves the cache as it is") {
  const OperationSpec cached[] = {allreduce("x"),        allgather("x", {2, 2}), broadcast("x", 0),
                                  alltoall("x", {1, 0}), barrier("x"),           reducescatter("x", {4})};
  for (const OperationSpec& spec : cached) {
    CAPTURE(collective_name(spec.collective));
    Job job(2);
    job.ask(0, spec);
    job.ask(1, spec);
    const Response first = job.response();
    CHECK(first.contributing == 2);
    job.ask(1, join());
    for (int step = 0; step < 2; ++step) {
      job.hit(0, first.slot);
      const Response alone = job.response();
      CHECK(alone.spec == spec);
      CHECK(alone.slot == kNoSlot);
      CHECK(alone.contributing == 1);
    }
    job.ask(0, join());
    CHECK(job.response().rank == 0);
    job.hit(1, first.slot);
    CHECK(job.silent());
    job.hit(0, first.slot);
    CHECK(job.next_entry() == ResponseList::Entry{first.slot, std::nullopt});
  }
}

TEST_CASE("What all ranks have asked for has a slot, though some have joined since") {
  Job job(2);
  job.ask(1, allreduce("x"));
  job.ask(1, join());
  job.ask(0, allreduce("x"));
  const Response response = job.response();
  CHECK(response.slot != kNoSlot);
  CHECK(response.contributing == 2);
  job.ask(0, allreduce("y"));
  CHECK(job.response().slot == kNoSlot);
}

TEST_CASE("A joined rank has no rows") {
  const bool join_first = GENERATE(true, false);
  struct Row {
    OperationSpec spec;  // of ranks 0 and 1
    std::vector<std::vector<std::int64_t>> rows;
  };
  const Row rows[] = {{allgather("x", {2, 5}), {{2, 2, 0}}},
                      {alltoall("x", {3, 4, 0}), {{3, 4, 0}, {3, 4, 0}, {0, 0, 0}}},
                      {broadcast("x", 1), {}},
                      {reducescatter("x", {5}), {}}};
  for (const Row& row : rows) {
    CAPTURE(collective_name(row.spec.collective), join_first);
    Job job(3);
    if (join_first) job.ask(2, join());
    job.ask(0, row.spec);
    if (!join_first) job.ask(2, join());
    CHECK(job.silent());
    job.ask(1, row.spec);
    const Response response = job.response();
    CHECK(response.kind == Response::Kind::execute);
    CHECK(response.rows == row.rows);
    CHECK(response.contributing == 2);
  }
}

TEST_CASE("What needs a rank that has joined fails, whoever comes first") {
  OperationSpec product = reducescatter("x", {3});
  product.op = ReduceOp::product;
  product.prescale = 0.5;
  const std::pair<OperationSpec, const char*> needy[] = {
      {broadcast("x", 2), "its root, rank 2 on host-c, has joined"},
      {alltoall("x", {1, 1, 4}), "rank 0 on host-a sends 4 rows to rank 2 on host-c, which has joined"},
      {product, "needs every rank, but rank 2 on host-c has joined"}};
  for (const auto& [spec, text] : needy) {
    const bool join_first = GENERATE(true, false);
    const bool cached = GENERATE(true, false);
    CAPTURE(collective_name(spec.collective), join_first, cached);
    Job job(3);
    if (cached) {
      for (int rank = 0; rank < 3; ++rank) job.ask(rank, spec);
      CHECK(job.response().slot == 0);
    }
    const auto ask = [&](int rank) { cached ? job.hit(rank, 0) : job.ask(rank, spec); };
    if (join_first) job.ask(2, join());
    ask(0);
    if (!join_first) job.ask(2, join());
    job.expect_error("x", {0}, text);
    ask(1);
    job.expect_error("x", {1}, text);
    job.ask(0, join());
    job.ask(1, join());
    CHECK(job.response().kind == Response::Kind::all_joined);
    for (int rank = 0; rank < 3; ++rank) ask(rank);
    CHECK_FALSE(job.silent());
  }
}

TEST_CASE("Where only allreduces go on without joined ranks, all else fails, whoever comes first") {
  const bool join_first = GENERATE(true, false);
  for (const OperationSpec& spec :
       {allgather("x", {3}), broadcast("x", 0), reducescatter("x", {3}), alltoall("x", {3, 3, 0})}) {
    CAPTURE(collective_name(spec.collective), join_first);
    CoordinatorOptions options{.size = 3};
    options.join_scope = JoinScope::allreduce;
    Job job(options);
    if (join_first) job.ask(2, join());
    job.ask(0, spec);
    if (!join_first) job.ask(2, join());
    job.expect_error("x", {0}, "rank 2 on host-c has joined, and HVD_JOIN_SCOPE=allreduce");
    job.ask(1, spec);
    job.expect_error("x", {1}, "has joined");
    for (int rank = 0; rank < 2; ++rank) job.ask(rank, allreduce("sum", {3}));
    CHECK(job.response().contributing == 2);
  }
}

TEST_CASE("Rows for a joined rank fail an alltoall that its first ranks could have done") {
  Job job(3);
  job.ask(2, join());
  job.ask(0, alltoall("x", {1, 1, 0}));
  CHECK(job.silent());
  job.ask(1, alltoall("x", {1, 1, 7}));
  job.expect_error("x", {0, 1}, "rank 1 on host-b sends 7 rows to rank 2 on host-c, which has joined");
}

TEST_CASE("Rows sent before joining arrive, also from a rank that has joined to another one that has") {
  Job job(3);
  for (const int rank : {1, 2}) job.ask(rank, alltoall("x", {0, 2, 3}));
  for (const int rank : {1, 2}) job.ask(rank, join());
  CHECK(job.silent());
  job.ask(0, alltoall("x", {1, 1, 1}));
  const Response response = job.response();
  CHECK(response.rows == std::vector<std::vector<std::int64_t>>{{1, 1, 1}, {0, 2, 3}, {0, 2, 3}});
  CHECK(response.contributing == 3);
}

TEST_CASE("What ranks wait for is finished before the join that completes it") {
  Job job(2);
  job.ask(0, allreduce("x"));
  job.ask(0, allreduce("y"));
  job.ask(0, broadcast("needs rank 1", 1));
  job.ask(0, join());
  job.ask(1, allreduce("y"));
  job.ask(1, join());
  const auto entries = job.next_entries();
  REQUIRE(entries.size() == 4);
  CHECK(entries[0].response->kind == Response::Kind::error);
  CHECK(entries[0].response->ranks == std::vector<std::int32_t>{0});
  CHECK(entries[1].response->spec.name == "y");
  CHECK(entries[1].response->contributing == 2);
  CHECK(entries[2].response->spec.name == "x");
  CHECK(entries[2].response->contributing == 1);
  CHECK(entries[3].response->kind == Response::Kind::all_joined);
  CHECK(entries[3].response->rank == 1);
}

TEST_CASE("A rank that asked and then joined is part of the negotiation") {
  Job job(2);
  job.ask(1, allgather("g", {2}));
  job.ask(1, join());
  CHECK(job.silent());
  job.ask(0, allgather("g", {3}));
  CHECK(job.response().rows == std::vector<std::vector<std::int64_t>>{{3, 2}});
}

TEST_CASE("A rank that joins is late for nothing") {
  Job job(3);
  job.ask(0, allreduce("x", {1}));
  job.ask(1, allreduce("x", {2}));
  job.next_entry();
  for (int rank = 0; rank < 3; ++rank) job.ask(rank, join());
  job.next_entry();
  for (int rank = 0; rank < 3; ++rank) job.ask(rank, allreduce("x", {4}));
  job.expect_execute(allreduce("x", {4}));
}

TEST_CASE("A rank that leaves ends everything after what is ready") {
  Job job(2);
  job.ask(0, allreduce("x"));
  job.ask(1, allreduce("x"));
  job.ask(0, allreduce("never"));
  job.leave(1);
  job.leave(0);
  const auto entries = job.next_entries();
  REQUIRE(entries.size() == 2);
  CHECK(entries[0].response->kind == Response::Kind::execute);
  CHECK(entries[1].response->kind == Response::Kind::shut_down);
  CHECK(entries[1].response->rank == 1);
  CHECK(entries[1].response->status == Status(StatusCode::shut_down, "rank 1 on host-b has shut hvd down"));
  job.ask(1, allreduce("never"));
  CHECK(job.silent());
  CHECK(job.coordinator.next_deadline() == Deadline::max());
}

TEST_CASE("Many ranks of a process set are called by their numbers in the job") {
  Job job({.size = 5, .job_ranks = {3, 4, 5, 6, 7}, .stall_warning = 10s, .stall_limit = 25s});
  job.ask(0, allreduce("x"));
  job.now = kStart + 10s;
  CHECK(job.next_entries().empty());
  CHECK(job.warnings == std::vector<std::string>{"stalled: waiting for ranks 4-7 to submit allreduce 'x' (10.0 s)"});
  job.now = kStart + 25s;
  CHECK(job.response().status.message() ==
        "allreduce 'x': given up after 25.0 s of waiting for ranks 4-7 to submit it");
}

TEST_CASE("Stalls are reported, and given up at the limit") {
  Job job(3, 16, 25s);
  CHECK(job.coordinator.next_deadline() == Deadline::max());
  job.ask(0, allreduce("x"));
  CHECK(job.coordinator.next_deadline() == kStart + 10s);
  job.now = kStart + 10s;
  CHECK(job.next_entries().empty());
  CHECK(job.warnings == std::vector<std::string>{"stalled: waiting for rank 1 on host-b and rank 2 on host-c to submit "
                                                 "allreduce 'x' (10.0 s)"});
  CHECK(job.coordinator.next_deadline() == kStart + 20s);
  job.ask(2, allreduce("x"));
  job.now = kStart + 20s;
  CHECK(job.next_entries().empty());
  CHECK_THAT(job.warnings.at(0), Contains("rank 1 on host-b to submit"));
  job.now = job.coordinator.next_deadline();
  CHECK(job.now == kStart + 25s);
  const Response error = job.response();
  CHECK(error.status.code() == StatusCode::timeout);
  CHECK(error.ranks == std::vector<std::int32_t>{0, 2});
  CHECK_THAT(error.status.message(), Contains("'x'") && Contains("25.0 s") && Contains("rank 1 on host-b"));
  CHECK(job.coordinator.next_deadline() == Deadline::max());
  job.ask(1, allreduce("x"));
  CHECK(job.response().status == error.status);
}

TEST_CASE("An operation that arrives in time leaves no deadline behind") {
  Job job(2);
  job.ask(0, allreduce("x"));
  job.now += 5s;
  job.ask(1, allreduce("x"));
  job.next_entry();
  CHECK(job.coordinator.next_deadline() == Deadline::max());
}

TEST_CASE("Joined ranks are not reported as missing") {
  Job job(3);
  job.ask(2, join());
  job.ask(0, allreduce("x"));
  job.now += 10s;
  job.next_entries();
  CHECK_THAT(job.warnings.at(0), Contains("rank 1") && !Contains("rank 0") && !Contains("rank 2"));
}

TEST_CASE("Who does not come to a join is reported while nothing else is open, and given up at the limit") {
  Job job(3, 16, 25s);
  job.ask(2, join());
  CHECK(job.coordinator.next_deadline() == kStart + 10s);
  job.now = kStart + 10s;
  CHECK(job.silent());
  CHECK(job.warnings ==
        std::vector<std::string>{"stalled: waiting for rank 0 on host-a and rank 1 on host-b to submit join (10.0 s)"});
  job.now = kStart + 15s;
  job.ask(1, join());
  job.now = kStart + 25s;
  CHECK(job.silent());
  CHECK(job.warnings == std::vector<std::string>{"stalled: waiting for rank 0 on host-a to submit join (10.0 s)"});
  job.now = kStart + 40s;
  const Response error = job.response();
  CHECK(error.kind == Response::Kind::error);
  CHECK(error.spec.name == join().name);
  CHECK(error.ranks == std::vector<std::int32_t>{1, 2});
  CHECK(error.status.code() == StatusCode::timeout);
  CHECK_THAT(error.status.message(), Contains("join: given up after 25.0 s of waiting for rank 0 on host-a"));
  CHECK(job.coordinator.next_deadline() == Deadline::max());
  // As if nobody had joined.
  for (int rank = 0; rank < 3; ++rank) job.ask(rank, broadcast("x", 2));
  CHECK(job.response().contributing == 3);
  job.ask(0, join());
  CHECK(job.response().status == error.status);
  for (int rank = 0; rank < 3; ++rank) job.ask(rank, join());
  CHECK(job.response().rank == 2);
  CHECK(job.coordinator.next_deadline() == Deadline::max());
}

TEST_CASE("Who comes late to what was given up gets the same error each time, and is in step again") {
  Job job(3, 16, 25s);
  std::vector<Status> given_up;
  const auto give_up = [&](const std::string& name) {
    for (const int rank : {0, 1}) job.ask(rank, allreduce(name));
    job.now += 25s;
    const Response error = job.response();
    CHECK(error.ranks == std::vector<std::int32_t>{0, 1});
    given_up.push_back(error.status);
  };
  for (const char* name : {"unnamed.1", "unnamed.2", "unnamed.after.2", "unnamed.after.2"}) give_up(name);
  // Rank 2 goes through its program while the others have gone on.
  for (const int rank : {0, 1}) job.ask(rank, allreduce("unnamed.after.2"));
  std::size_t late = 0;
  for (const char* name : {"unnamed.1", "unnamed.2", "unnamed.after.2", "unnamed.after.2"}) {
    job.ask(2, allreduce(name));
    const Response error = job.response();
    CHECK(error.ranks == std::vector<std::int32_t>{2});
    CHECK(error.status == given_up.at(late++));
  }
  job.ask(2, allreduce("unnamed.after.2"));
  job.expect_execute(allreduce("unnamed.after.2"));
  CHECK(job.coordinator.next_deadline() == Deadline::max());
}

TEST_CASE("Who comes late to a join that was given up gets the same error, as does what it asked for before it") {
  Job job(3, 16, 25s);
  const auto give_up_join = [&] {
    for (const int rank : {0, 1}) job.ask(rank, join());
    job.now += 25s;
    return job.response();
  };
  const Response first = give_up_join();
  CHECK(first.ranks == std::vector<std::int32_t>{0, 1});
  // The others number anew, also if they give up again; and what they cannot do without rank 2 is for later.
  for (const int rank : {0, 1}) job.ask(rank, allreduce("unnamed.1.after.join.1"));
  job.now += 25s;
  const Status earlier = job.response().status;
  const Response second = give_up_join();

  job.ask(2, allreduce("unnamed.7"));
  Response late = job.response();
  CHECK(late.ranks == std::vector<std::int32_t>{2});
  CHECK(late.spec.name == "unnamed.7");
  CHECK(late.status == first.status);
  for (const int rank : {0, 1, 2}) job.ask(rank, allreduce("named"));  // as if nobody had joined
  CHECK(job.response().contributing == 3);

  job.ask(2, join());
  late = job.response();
  CHECK(late.spec.name == join().name);
  CHECK(late.ranks == std::vector<std::int32_t>{2});
  CHECK(late.status == first.status);
  job.ask(2, allreduce("unnamed.1.after.join.1"));
  CHECK(job.response().status == earlier);
  job.ask(2, join());
  CHECK(job.response().status == second.status);
  for (const int rank : {2, 1, 0}) job.ask(rank, allreduce("unnamed.1.after.join.2"));
  CHECK(job.response().contributing == 3);
  for (const int rank : {2, 1, 0}) job.ask(rank, join());
  CHECK(job.response().kind == Response::Kind::all_joined);
  CHECK(job.coordinator.next_deadline() == Deadline::max());
}

TEST_CASE("Names that nobody comes back to do not fill the memory: the oldest are forgotten") {
  constexpr int kRemembered = 1 << 16;
  Job job(2, 16, 25s);
  for (int i = 0; i <= kRemembered; ++i) job.ask(0, allreduce("unnamed." + std::to_string(i)));
  job.now += 25s;
  CHECK(job.next_entries().size() == kRemembered + 1);
  job.ask(1, allreduce("unnamed.0"));
  CHECK(job.silent());
  job.ask(1, allreduce("unnamed.1"));
  CHECK(job.response().status.code() == StatusCode::timeout);
}

TEST_CASE("A hit of a rank that has not come to a join that was given up is refused like a request") {
  Job job(2, 16, 25s);
  for (const int rank : {0, 1}) job.ask(rank, allreduce("unnamed.after.0"));
  const std::uint32_t slot = job.response().slot;
  job.ask(0, join());
  job.now += 25s;
  const Status given_up = job.response().status;
  job.hit(1, slot);
  CHECK(job.response().status == given_up);
}

TEST_CASE("Late ranks of one message get each its own failure") {
  Job job({.size = 4, .sources = {{0, RankSet(0)}, {1, RankSet(1, 4)}}, .stall_warning = 0s, .stall_limit = 25s});
  const auto join_together = [&](const RankSet& ranks) {
    SubtreeMessage message{.applied_by_all = job.number};
    message.messages.push_back({.ranks = ranks, .applied = job.number, .latest = job.number, .requests = {join()}});
    job.coordinator.receive(1, message, job.now);
  };
  job.ask(0, join());
  join_together(RankSet(3));
  job.now += 25s;
  const Response given_up = job.response();
  CHECK(given_up.ranks == std::vector<std::int32_t>{0, 3});
  join_together(RankSet(1, 4));  // the first of ranks 1 and 2, the second of rank 3
  const Response late = job.response();
  CHECK(late.ranks == std::vector<std::int32_t>{1, 2});
  CHECK(late.status == given_up.status);
  job.ask(0, join());
  CHECK(job.silent());
  join_together(RankSet(1, 3));
  CHECK(job.response().kind == Response::Kind::all_joined);
}

TEST_CASE("A rank that still works keeps nobody waiting for its join") {
  Job job(2, 16, 25s);
  job.ask(1, join());
  for (int step = 0; step < 20; ++step) {
    job.now += 5s;
    job.ask(0, allreduce("x"));
    CHECK(job.response().kind == Response::Kind::execute);
    CHECK(job.warnings.empty());
  }
  job.now += 10s;
  CHECK(job.silent());
  CHECK_THAT(job.warnings.at(0), Contains("rank 0 on host-a to submit join (10.0 s)"));
}

TEST_CASE("A message that breaks the protocol is refused with the rank's name") {
  Job job(2);
  job.ask(0, allreduce("x"));
  job.ask(1, allreduce("x"));
  job.next_entry();
  OperationSpec foreign = allreduce("x");
  foreign.process_set = 5;
  const auto refused = [&](const RankMessage& message, const char* text) {
    CHECK_THROWS_WITH(job.send(1, message), Contains("rank 1 on host-b") && Contains(text));
  };
  SECTION("a slot that is empty") { refused({.applied = 1, .hits = {1}, .requests = {}}, "slot 1"); }
  SECTION("a slot far beyond") { refused({.applied = 1, .hits = {0xfffffffe}, .requests = {}}, "slot 4294967294"); }
  SECTION("a message from the future") { refused({.applied = 2, .hits = {}, .requests = {}}, "message 2"); }
  SECTION("back in time") {
    job.send(1, {.applied = 1, .hits = {}, .requests = {}});
    refused({.applied = 0, .hits = {}, .requests = {}}, "message 0");
  }
  SECTION("an unknown process set") { refused({.applied = 1, .hits = {}, .requests = {foreign}}, "process set 5"); }
  SECTION("the same name twice") {
    job.ask(1, allreduce("y"));
    refused({.applied = 1, .hits = {}, .requests = {allreduce("y")}}, "'y' twice");
  }
  SECTION("the same slot twice") {
    job.hit(1, 0);
    refused({.applied = 1, .hits = {0}, .requests = {}}, "'x' twice");
  }
  SECTION("joining twice") {
    job.ask(1, join());
    refused({.applied = 1, .hits = {}, .requests = {join()}}, "joins twice");
  }
  SECTION("asking after a join") {
    job.ask(1, join());
    refused({.applied = 1, .hits = {}, .requests = {allreduce("y")}}, "after a join");
  }
  SECTION("a rank that does not exist") {
    CHECK_THROWS_WITH(job.send(2, {}), Contains("rank 2 on host-c"));
    CHECK_THROWS_AS(job.send(2, {}), Internal);
    CHECK_THROWS_AS(job.send(-1, {}), Internal);
  }
}
