// What the coordinator does when steps repeat.
#include <string>
#include <vector>

#include "core/control/coordinator/coordinator.h"
#include "tests/core/control/specs.h"
#include "tests/support/catch.h"

using namespace hvd;

namespace {

const TimePoint kNow{1000s};

// Two ranks that apply each message at once, and two operations that they know as slots 0 and 1.
struct RepeatingJob {
  RepeatingJob() : coordinator({.size = 2, .cache_capacity = 16, .locks = true}, describe_test_rank) {
    for (int rank = 0; rank < 2; ++rank) send(rank, {.requests = {allreduce("a"), allreduce("b")}});
    next_entries();
  }

  void send(int rank, RankMessage message) {
    if (message.applied == 0) message.applied = number;
    coordinator.receive(rank, sent_by(rank, std::move(message)), kNow);
  }
  std::vector<ResponseList::Entry> next_entries() {
    const auto message = coordinator.respond(kNow);
    if (!message) return {};
    number = message->number;
    return message->entries;
  }
  std::vector<ResponseList::Entry> step() {
    for (int rank = 0; rank < 2; ++rank) send(rank, {.hits = {0, 1}});
    return next_entries();
  }
  static bool locks(const std::vector<ResponseList::Entry>& entries) {
    return !entries.empty() && entries.back().response && entries.back().response->kind == Response::Kind::lock;
  }

  Coordinator coordinator;
  std::uint64_t number = 0;
};

}  // namespace

TEST_CASE("coordinator: after two steps that are alike comes a schedule") {
  RepeatingJob job;
  const auto entries = job.step();
  REQUIRE(entries.size() == 3);
  REQUIRE(job.locks(entries));
  CHECK(entries.back().response->schedule == Schedule{{0, 1}});
}

TEST_CASE("coordinator: a pending failure beside the schedule does not keep it from being locked") {
  RepeatingJob job;
  job.send(0, {.requests = {broadcast("c", 7)}});  // wrong by itself
  const auto errors = job.next_entries();
  REQUIRE(errors.size() == 1);
  REQUIRE(errors.front().response->kind == Response::Kind::error);
  job.step();
  REQUIRE(job.locks(job.step()));
  job.coordinator.unlock(1);
  job.send(1, {.requests = {allreduce("c")}});
  const auto late = job.next_entries();
  REQUIRE(late.size() == 1);
  CHECK(late.front().response->status == errors.front().response->status);
}

TEST_CASE("coordinator: what ranks asked for before they knew of the schedule does not count, and later it does") {
  RepeatingJob job;
  const std::uint64_t before = job.number;
  REQUIRE(job.locks(job.step()));
  job.send(1, {.applied = before, .hits = {0}, .requests = {allreduce("c")}});
  CHECK(job.next_entries().empty());

  job.coordinator.unlock(20);
  job.send(0, {.hits = {0}});
  job.send(1, {.hits = {0}, .requests = {allreduce("c")}});
  CHECK(job.next_entries() == std::vector<ResponseList::Entry>{{0, std::nullopt}});
  job.send(0, {.requests = {allreduce("c")}});
  CHECK(job.next_entries().size() == 1);
}

TEST_CASE("coordinator: rounds that are under way at the lock are forgotten if they are in the schedule") {
  RepeatingJob job;
  job.send(0, {.hits = {0}});
  bool locked = false;
  for (int step = 0; step < 5 && !locked; ++step) {
    job.send(0, {.hits = {1}});
    job.send(1, {.hits = {0}});
    locked = job.locks(job.next_entries());  // with 1 under way
    if (locked) break;
    job.send(0, {.hits = {0}});  // of the next step
    job.send(1, {.hits = {1}});
    locked = job.locks(job.next_entries());
  }
  REQUIRE(locked);
  job.coordinator.unlock(20);
  job.send(0, {.hits = {0}});
  CHECK(job.next_entries().empty());
  job.send(1, {.hits = {0}});
  CHECK(job.next_entries().size() == 1);
}

TEST_CASE("coordinator: no schedule while something else is under way") {
  RepeatingJob job;
  job.send(1, {.requests = {allreduce("c")}});
  CHECK_FALSE(job.locks(job.step()));
  CHECK_FALSE(job.locks(job.step()));
}

TEST_CASE("coordinator: no schedule while a rank is late for a failure, has joined or leaves") {
  SECTION("late") {
    RepeatingJob job;
    OperationSpec other = allreduce("d");
    other.op = ReduceOp::max;
    job.send(0, {.requests = {allreduce("d")}});
    job.send(0, {.requests = {allgather("e", {2})}});
    job.send(1, {.requests = {other}});
    job.next_entries();
    for (int i = 0; i < 5; ++i) CHECK_FALSE(job.locks(job.step()));
  }
  SECTION("has joined") {
    RepeatingJob job;
    job.send(1, {.requests = {join()}});
    for (int i = 0; i < 5; ++i) {
      job.send(0, {.hits = {0, 1}});
      CHECK_FALSE(job.locks(job.next_entries()));
    }
  }
  SECTION("leaves") {
    RepeatingJob job;
    for (int rank = 0; rank < 2; ++rank) job.send(rank, {.hits = {0, 1}, .shut_down = rank == 1});
    CHECK_FALSE(job.locks(job.next_entries()));
  }
}

TEST_CASE("coordinator: a rank that says that it leaves before it knows of the schedule is heard") {
  RepeatingJob job;
  const std::uint64_t before = job.number;
  REQUIRE(job.locks(job.step()));
  job.send(1, {.applied = before, .shut_down = true});
  const auto entries = job.next_entries();
  REQUIRE(entries.size() == 1);
  CHECK(entries[0].response->kind == Response::Kind::shut_down);
}

TEST_CASE("coordinator: without the option there are no schedules") {
  RepeatingJob job;
  Coordinator plain({.size = 1, .cache_capacity = 16}, describe_test_rank);
  for (std::uint64_t step = 0; step < 5; ++step) {
    plain.receive(0, sent_by(0, {.applied = step, .requests = {allreduce("a")}}), kNow);
    CHECK_FALSE(RepeatingJob::locks(plain.respond(kNow)->entries));
  }
}
