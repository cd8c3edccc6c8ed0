// One shard without a server: what each request does, once, and what it refuses.
#include "parameters/shard.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "tests/parameters/shard_caller.h"
#include "tests/support/catch.h"

namespace hvd {
namespace {

using Keys = std::vector<std::uint64_t>;
using Values = std::vector<float>;

TableSpec table_of(std::uint32_t width, Consistency consistency = Consistency::asynchronous, std::uint32_t bound = 0) {
  TableSpec spec{.name = "rows", .width = width, .consistency = consistency, .bound = bound};
  spec.optimizer.rule = UpdateRule::add;
  return spec;
}

// The same with rows that all exist.
TableSpec dense_of(TableSpec spec, std::uint64_t rows) {
  spec.dense = true;
  spec.rows = rows;
  return spec;
}

// The line's value; -1 if there is no such line.
long stat(const std::string& text, const std::string& line) {
  const std::size_t at = text.find(line + " ");
  return at == std::string::npos ? -1 : std::stol(text.substr(at + line.size() + 1));
}

Keys range(std::uint64_t first, std::size_t count) {
  Keys keys(count);
  std::iota(keys.begin(), keys.end(), first);
  return keys;
}

TEST_CASE("duplicates in a push are one update of their sum") {
  Shard shard(0, 1, 0);
  ShardCaller worker(shard, 0, 1);
  TableSpec spec = table_of(2);
  spec.optimizer = {.rule = UpdateRule::sgd, .learning_rate = 1, .momentum = 0.5f};
  const auto table = worker.open(spec);
  for (int i = 0; i < 2; ++i) worker.push(table, {9, 3, 9, 9}, {1, 2, 10, 20, 3, 4, 5, 6});
  // Momentum: sum, then 0.5 * sum + sum.
  CHECK(worker.pull(table, {9, 3, 1}) == Values{-2.5f * 9, -2.5f * 12, -2.5f * 10, -2.5f * 20, 0, 0});
  CHECK(stat(worker.stats(), "rows updates") == 2);
  CHECK(stat(worker.stats(), "rows rows") == 2);
}

TEST_CASE("what is numbered is applied once, and answered as often as it is asked") {
  Shard shard(0, 1, 0);
  ShardCaller worker(shard, 0, 1);
  const auto table = worker.open(table_of(1));
  const Keys key = {4};
  const Values one = {1};
  PsRequest push = worker.header(PsOp::push, table, 1);
  for (push.sequence = 1; push.sequence <= 3; ++push.sequence) {
    for (int again = 0; again < 3; ++again) apply_to(shard, push, payload_of(key, one));
  }
  push.sequence = 2;  // an old one
  apply_to(shard, push, payload_of(key, one));
  CHECK(worker.pull(table, key) == Values{3});
  PsRequest both = worker.header(PsOp::push_pull, table, 1);
  both.sequence = 4;
  CHECK(apply_to(shard, both, payload_of(key, one)).rows() == Values{4});
  CHECK(apply_to(shard, both, payload_of(key, one)).rows() == Values{4});
  CHECK(worker.hello().applied == 4);
  CHECK(worker.hello().rows == 1);
  PsRequest clock = worker.header(PsOp::clock);
  clock.clock = 7;
  clock.sequence = 5;
  CHECK(apply_to(shard, clock).header.min_clock == 7);
  clock.clock = 9;
  CHECK(apply_to(shard, clock).header.min_clock == 7);
}

TEST_CASE("a push that is refused changes nothing, and may be repeated") {
  Shard shard(0, 1, 0);
  ShardCaller worker(shard, 0, 1);
  const auto table = worker.open(dense_of(table_of(1), 4));
  const std::string before = worker.stats();
  CHECK_THROWS_AS(worker.push(table, {0, 4}, {1, 1}), InvalidArgument);
  CHECK(worker.hello().applied == 0);
  CHECK(worker.pull(table, {0}) == Values{0});
  CHECK(stat(worker.stats(), "rows rows") == 0);
  CHECK(stat(worker.stats(), "rows pushes") == stat(before, "rows pushes"));
  CHECK_THROWS_AS(worker.push(7, {0}, {1}), InvalidArgument);
  CHECK_THROWS_AS(worker.push(table, {0}, {1, 2}), Internal);  // the payload is another one's
  CHECK_THROWS_AS(worker.push(table, {0, 1}, {1}), Internal);
  CHECK_THROWS_AS(apply_to(shard, worker.header(PsOp::pull, table, 2), payload_of(Keys{1})), Internal);
  CHECK_THROWS_AS(apply_to(shard, worker.header(PsOp::hello), payload_of(Keys{1, 2})), Internal);
  const auto wide = worker.open({.name = "wide", .width = kMaxWidth});
  CHECK_THROWS_AS(worker.pull(wide, range(0, 3)), InvalidArgument);
  CHECK_THROWS_AS(worker.set_learning_rate(table, -1), InvalidArgument);
  CHECK_THROWS_AS(worker.set_learning_rate(table, std::nanf("")), InvalidArgument);
}

TEST_CASE("a push that comes again must be well formed, too") {
  Shard shard(0, 1, 0);
  ShardCaller worker(shard, 0, 1);
  const auto table = worker.open(table_of(2));
  worker.push(table, {3}, {1, 1});
  PsRequest again = worker.header(PsOp::push, table, 1);
  again.sequence = 1;
  CHECK(apply_to(shard, again, payload_of(Keys{3}, Values{1, 1})).header.status == 0);
  CHECK_THROWS_AS(apply_to(shard, again, payload_of(Keys{3}, Values{1})), Internal);
  CHECK(stat(worker.stats(), "rows pushes") == 1);
}

TEST_CASE("a fill with a row that the table does not have fills none") {
  Shard shard(0, 1, 0);
  ShardCaller worker(shard, 0, 1);
  const auto table = worker.open(dense_of(table_of(1), 4));
  CHECK_THROWS_AS(apply_to(shard, worker.header(PsOp::fill, table, 2), payload_of(Keys{0, 4}, Values{1, 1})),
                  InvalidArgument);
  CHECK(stat(worker.stats(), "rows rows") == 0);
  apply_to(shard, worker.header(PsOp::fill, table, 2), payload_of(Keys{0, 3}, Values{1, 2}));
  CHECK(stat(worker.stats(), "rows rows") == 2);
  CHECK(worker.pull(table, {0, 3}) == Values{1, 2});
}

TEST_CASE("a refusal is kept with the shard's state, and only for its worker") {
  Shard shard(0, 1, 0);
  ShardCaller worker(shard, 0, 2), other(shard, 1, 2);
  const auto table = worker.open(table_of(1));
  PsRequest refused = worker.header(PsOp::refused, table);
  refused.sequence = 5;
  const std::string why = "it is full";
  apply_to(shard, refused, std::as_bytes(std::span(why)));
  CHECK(worker.hello().applied == 5);
  Shard replica(0, 1, 0);
  add_state(replica, state_of(shard));
  PsRequest push = refused;
  push.op = PsOp::push;
  push.rows = 1;
  const Bytes payload = payload_of(Keys{1}, Values{1});
  for (Shard* const one : {&shard, &replica}) {
    CHECK_THROWS_WITH(apply_to(*one, push, payload), why);
    PsRequest next = push;
    ++next.sequence;
    apply_to(*one, next, payload);
    CHECK_THROWS_WITH(apply_to(*one, push, payload), why);
    CHECK(apply_to(*one, worker.header(PsOp::pull, table, 1), payload_of(Keys{1})).rows() == Values{1});
    refused.worker = 7;  // there is none
    CHECK_NOTHROW(apply_to(*one, refused, std::as_bytes(std::span(why))));
  }
  PsRequest of_other = push;
  of_other.worker = 1;
  CHECK_NOTHROW(apply_to(shard, of_other, payload));
  CHECK(other.pull(table, {1}) == Values{2});
  CHECK(ShardCaller(shard, 0, 2, 2).hello().applied == 0);  // another process
}

// Forwards the evictions of a shard, as its server does; returns the number of rows.
long pass_on_evicted(Shard& from, Shard& to) {
  long rows = 0;
  for (const auto& [table, keys] : from.take_evicted()) {
    rows += static_cast<long>(keys.size());
    apply_to(to, {.op = PsOp::evicted, .table = table, .rows = static_cast<std::uint32_t>(keys.size())},
             payload_of(keys));
  }
  return rows;
}

// A shard with limits of rows and of age, and a replica that receives its state while it serves.
TEST_CASE("a replica has the rows that its primary has, whichever go") {
  std::mt19937 dice(GENERATE(Catch::Generators::range(0u, 20u)));
  Shard primary(0, 1, 0), replica(0, 1, 0);
  for (Shard* const shard : {&primary, &replica}) shard->keep_evicted(true);
  replica.follow();
  ShardCaller worker(primary, 0, 1);
  TableSpec limited = table_of(4096), aged = table_of(4096);  // a part of the state has eight rows
  limited.rows = 40;
  aged.name = "aged";
  aged.max_age = 2;
  const std::uint16_t tables[] = {worker.open(limited), worker.open(aged)};
  StatePosition position;
  bool is_whole = false;
  long evicted = 0;
  const auto on_both = [&](const PsRequest& request, const Bytes& payload) {
    apply_to(primary, request, payload);
    if (!position.begun) {
      primary.take_evicted();
      return;
    }
    apply_to(replica, request, payload);
    evicted += pass_on_evicted(primary, replica);
  };
  PsRequest clock = worker.header(PsOp::clock);
  for (std::uint64_t step = 1; step <= 600; ++step) {
    if (step > 100 && !is_whole && dice() % 3 == 0) {
      const Bytes part = primary.write_state(position);
      is_whole = part.empty();
      if (!is_whole) replica.read_state(part);
    }
    const std::uint16_t table = tables[dice() % 2];
    const Keys keys = {dice() % 60, 60 + dice() % 20};
    PsRequest request = worker.header(dice() % 2 == 0 ? PsOp::pull : PsOp::push, table, keys.size());
    request.sequence = clock.sequence = step;
    if (dice() % 8 == 0) {
      ++clock.clock;
      on_both(clock, {});
    } else if (request.op == PsOp::pull) {
      apply_to(primary, request, payload_of(keys));  // the replica does not know of it
    } else {
      on_both(request, payload_of(keys, Values(2 * 4096, static_cast<float>(step))));
    }
  }
  REQUIRE(is_whole);
  REQUIRE(evicted > 100);
  const auto have_same = [&](std::uint16_t table) {
    for (std::uint64_t key = 0; key < 80; ++key) {
      const PsRequest pull = worker.header(PsOp::pull, table, 1);
      if (apply_to(primary, pull, payload_of(Keys{key})).rows() !=
          apply_to(replica, pull, payload_of(Keys{key})).rows())
        return false;
    }
    return true;
  };
  CHECK(have_same(tables[0]));
  CHECK(have_same(tables[1]));
  for (const char* const line : {"rows rows", "aged rows"})
    CHECK(stat(primary.stats(), line) == stat(replica.stats(), line));

  replica.lead();
  const long aged_rows = stat(replica.stats(), "aged rows");
  for (int i = 1; i <= 5; ++i) {
    ++clock.clock;
    ++clock.sequence;
    apply_to(replica, clock);
    if (i <= 2) CHECK(stat(replica.stats(), "aged rows") == aged_rows);  // the other one may have seen pulls of them
  }
  CHECK(stat(replica.stats(), "aged rows") == 0);
  PsRequest push = worker.header(PsOp::push, tables[0], 20);
  push.sequence = clock.sequence + 1;
  apply_to(replica, push, payload_of(range(1000, 20), Values(20 * 4096, 1.0f)));
  CHECK(stat(replica.stats(), "rows rows") == 40);
}

// As a server applies them.
ShardAnswer compensated(Shard& shard, const PsRequest& request, const Bytes& payload) {
  return apply_to(shard, request, shard.compensate(request, payload));
}

TEST_CASE("delay compensation changes a gradient by what others have changed since the worker's pull") {
  const float c = 0.5f;
  Shard shard(0, 1, 0);
  ShardCaller slow(shard, 0, 2), fast(shard, 1, 2);
  TableSpec spec = dense_of(table_of(2, Consistency::bounded, 1000), 3);
  spec.optimizer = {.rule = UpdateRule::sgd, .learning_rate = 0.25f};
  spec.compensation = c;
  const auto table = slow.open(spec);
  std::uint64_t sequence = 0;
  const auto push = [&](const ShardCaller& worker, PsOp op, const Keys& keys, const Values& gradients) {
    PsRequest request = worker.header(op, table, keys.size());
    request.sequence = ++sequence;
    return compensated(shard, request, payload_of(keys, gradients)).rows();
  };
  push(slow, PsOp::push, {0, 1}, {1, 1, 1, 1});  // it has pulled nothing: a plain update
  CHECK(slow.pull(table, {0, 1, 2}) == Values{-0.25f, -0.25f, -0.25f, -0.25f, 0, 0});
  push(fast, PsOp::push, {0, 2}, {2, -4, 8, 0});
  CHECK(fast.pull(table, {0}) == Values{-0.75f, 0.75f});
  // Row 0 has moved by (-0.5, 1), row 1 not at all: g + c g g moved.
  const Values rows = push(slow, PsOp::push_pull, {0, 1}, {3, 2, 1, 1});
  const float first = 3 + c * 9 * -0.5f, second = 2 + c * 4 * 1.0f;
  CHECK(rows == Values{-0.75f - 0.25f * first, 0.75f - 0.25f * second, -0.5f, -0.5f});
  // With that it has pulled row 0 anew, and row 2 as it was.
  CHECK(push(slow, PsOp::push_pull, {0, 2}, {1, 0, 1, 1}) ==
        Values{rows[0] - 0.25f, rows[1], -2 - 0.25f * (1 + c * 1 * -2.0f), -0.25f});
  // A process that replaces a worker has pulled nothing.
  fast.pull(table, {0, 1, 2});
  push(slow, PsOp::push, {1}, {4, 4});
  ShardCaller again(shard, 1, 2, 2);
  sequence = 0;
  push(again, PsOp::push, {1}, {1, 1});
  CHECK(again.pull(table, {1}) == Values{-1.75f, -1.75f});
}

TEST_CASE("copies for delay compensation count as memory, and a pull without room changes nothing") {
  TableSpec spec = dense_of(table_of(4096), 40);
  spec.optimizer = {.rule = UpdateRule::sgd, .learning_rate = 1};
  spec.compensation = 1;
  Shard shard(0, 1, 3 * 40 * 4096 * sizeof(float));
  std::vector<ShardCaller> workers;
  for (std::uint32_t w = 0; w < 3; ++w) workers.emplace_back(shard, w, 3);
  const auto table = workers[0].open(spec);
  workers[0].push(table, range(0, 20), Values(20 * 4096, 1.0f));
  workers[0].push(table, range(20, 20), Values(20 * 4096, 1.0f));
  const auto pull_all = [&](ShardCaller& worker) {
    return worker.pull(table, range(0, 20)), worker.pull(table, range(20, 20));
  };
  pull_all(workers[0]);
  CHECK_THROWS_AS((pull_all(workers[1]), pull_all(workers[2])), InvalidArgument);
  CHECK(stat(workers[0].stats(), "- bytes") <= static_cast<long>(3 * 40 * 4096 * sizeof(float)));
  pull_all(workers[0]);  // the server keeps a copy for it
  PsRequest both = workers[2].header(PsOp::push_pull, table, 20);
  both.sequence = 100;
  CHECK_THROWS_AS(compensated(shard, both, payload_of(range(20, 20), Values(20 * 4096, 1.0f))), InvalidArgument);
  CHECK(workers[0].pull(table, {39})[0] == -1);
  workers[0].leave();
  shard.forget(1);
  CHECK_NOTHROW(pull_all(workers[2]));
}

TEST_CASE("a worker that has come again replaces the earlier one") {
  Shard shard(0, 1, 0);
  ShardCaller first(shard, 0, 2), other(shard, 1, 2);
  const auto table = first.open(table_of(1));
  first.push(table, {1}, {1});
  ShardCaller second(shard, 0, 2, 2);
  CHECK(second.hello().applied == 0);
  CHECK_THROWS_AS(first.push(table, {1}, {1}), Aborted);
  CHECK_THROWS_AS(first.pull(table, {1}), Aborted);
  CHECK_THROWS_AS(first.hello(), Aborted);
  second.push(table, {1}, {1});  // with a sequence that the first one had
  CHECK(second.pull(table, {1}) == Values{2});
  CHECK_THROWS_AS(ShardCaller(shard, 0, 1), Aborted);  // of an earlier incarnation, which counts fewer workers
  CHECK(other.hello().applied == 0);
  CHECK_NOTHROW(other.push(table, {5}, {1}));
  CHECK_THROWS_AS(ShardCaller(shard, 2, 2), InvalidArgument);
  CHECK_THROWS_AS(ShardCaller(shard, 0, 2, 0), InvalidArgument);
  CHECK_THROWS_AS(ShardCaller(shard, 0, 1u << 20), InvalidArgument);
  PsRequest unknown = second.header(PsOp::pull, table, 0);
  unknown.worker = 77;
  CHECK_THROWS_AS(apply_to(shard, unknown), InvalidArgument);
}

TEST_CASE("pulls wait for workers that are too far behind, and only for those") {
  struct Case {
    Consistency consistency;
    std::uint32_t bound;
    std::uint32_t ahead;  // how far a worker may be
  };
  for (const auto& [consistency, bound, ahead] :
       {Case{Consistency::asynchronous, 0, 1000}, Case{Consistency::bounded, 0, 0}, Case{Consistency::bounded, 3, 3},
        Case{Consistency::synchronous, 0, 0}}) {
    Shard shard(0, 1, 0);
    ShardCaller slow(shard, 0, 3), fast(shard, 1, 3);
    const auto table = fast.open(table_of(1, consistency, bound));
    CHECK(fast.may_pull(table));  // though worker 2 has not come
    for (std::uint32_t clock = 1; clock <= 6; ++clock) {
      fast.advance_clock();
      CHECK(fast.may_pull(table) == (clock <= ahead));
    }
    CHECK(shard.is_ready(fast.header(PsOp::push, table)));
    ShardCaller late(shard, 2, 3);
    CHECK(shard.workers().slowest() == 0);
    for (int i = 0; i < 6; ++i) late.advance_clock();
    CHECK(fast.may_pull(table) == (6 <= ahead));
    slow.leave();
    CHECK(fast.may_pull(table));
    fast.advance_clock();
    late.leave();
    CHECK(shard.workers().slowest() == 1);
    CHECK_FALSE(shard.is_over());
    fast.leave();
    CHECK(shard.is_over());
    CHECK(shard.workers().slowest() == -1);
  }
}

TEST_CASE("synchronous pushes take effect together, added up in the order of workers") {
  const float a = 1e8f, b = 1.5f, c = -1e8f;  // any other order gives other bits
  for (const bool average : {false, true}) {
    std::vector<int> order = {0, 1, 2};
    do {
      Shard shard(0, 1, 0);
      std::vector<ShardCaller> workers;
      for (std::uint32_t w = 0; w < 3; ++w) workers.emplace_back(shard, w, 3);
      TableSpec spec = table_of(1, Consistency::synchronous);
      spec.average = average;
      const auto table = workers[0].open(spec);
      const Values of_worker[] = {{a, 1}, {b, 2}, {c, 3}};
      for (const int w : order) {
        ShardCaller& worker = workers[static_cast<std::size_t>(w)];
        worker.push(table, {5, 6}, of_worker[w]);
        CHECK(worker.pull(table, {5, 6}) == Values{0, 0});
        worker.advance_clock();
        CHECK(worker.may_pull(table) == (w == order.back()));
      }
      const float share = average ? 1.0f / 3 : 1.0f, sum = (a + b) + c;
      CHECK(workers[0].pull(table, {5, 6}) == Values{sum * share, 6 * share});
      CHECK(stat(workers[0].stats(), "rows updates") == 1);
    } while (std::ranges::next_permutation(order).found);
  }
}

TEST_CASE("a synchronous push that cannot be applied is refused at once, not at the clock's end") {
  Shard shard(0, 1, std::size_t{8} << 20);
  ShardCaller guilty(shard, 0, 2), other(shard, 1, 2);
  TableSpec spec = dense_of(table_of(1, Consistency::synchronous), 4);
  const auto dense = guilty.open(spec);
  CHECK_THROWS_AS(guilty.push(dense, {4}, {1}), InvalidArgument);
  guilty.push(dense, {3}, {1});
  spec = table_of(1024, Consistency::synchronous);
  spec.name = "large";
  const auto large = guilty.open(spec);
  const Values ones(100 * 1024, 1.0f);
  std::size_t pushes = 0;
  try {
    for (; pushes < 20; ++pushes) guilty.push(large, range(100 * pushes, 100), ones);
  } catch (const InvalidArgument&) {
  }
  CHECK(pushes > 2);
  CHECK(pushes < 20);
  // Nor does the memory for pushes of the same rows grow.
  const std::size_t more = pushes;
  try {
    for (; pushes < more + 100; ++pushes) guilty.push(large, range(0, 100), ones);
  } catch (const InvalidArgument&) {
  }
  CHECK(pushes < more + 20);
  CHECK_NOTHROW(guilty.advance_clock());
  CHECK_NOTHROW(other.advance_clock());
  CHECK(other.pull(dense, {3}) == Values{1});
  CHECK(other.pull(large, {250})[7] == 1.0f);
  CHECK_NOTHROW(guilty.push(large, range(0, 100), ones));  // there is room again
}

TEST_CASE("a worker that comes again begins at the slowest one's clock, and settles what waited for it") {
  Shard shard(0, 1, 0);
  ShardCaller steady(shard, 0, 2), lost(shard, 1, 2);
  const auto table = steady.open(table_of(1, Consistency::synchronous));
  lost.push(table, {1}, {100});  // of a clock that it never finishes
  for (int clock = 0; clock < 3; ++clock) {
    steady.push(table, {1}, {1});
    steady.advance_clock();
  }
  CHECK_FALSE(steady.may_pull(table));
  ShardCaller again(shard, 1, 2, 2);
  CHECK(again.clock() == 3);
  CHECK(steady.may_pull(table));
  CHECK(steady.pull(table, {1}) == Values{103});
}

TEST_CASE("pushes of clocks that a new worker does again are not counted twice") {
  Shard shard(0, 1, 0);
  ShardCaller steady(shard, 0, 2), lost(shard, 1, 2);
  const auto table = steady.open(table_of(1, Consistency::synchronous));
  lost.push(table, {1}, {10});
  lost.advance_clock();
  lost.push(table, {1}, {10});
  ShardCaller again(shard, 1, 2, 2);
  CHECK(again.clock() == 0);
  for (int clock = 0; clock < 2; ++clock) {
    steady.push(table, {1}, {1});
    again.push(table, {1}, {10});
    steady.advance_clock();
    again.advance_clock();
  }
  CHECK(steady.pull(table, {1}) == Values{22});
}

TEST_CASE("nobody waits for a worker that is forgotten, and it may come back") {
  Shard shard(0, 1, 0);
  ShardCaller steady(shard, 0, 2), lost(shard, 1, 2);
  const auto table = steady.open(table_of(1, Consistency::synchronous));
  steady.push(table, {1}, {1});
  steady.advance_clock();
  CHECK_FALSE(steady.may_pull(table));
  shard.forget(1);
  shard.forget(99);  // nobody
  CHECK(steady.may_pull(table));
  CHECK(steady.pull(table, {1}) == Values{1});
  Shard replica(0, 1, 0);
  add_state(replica, state_of(shard));
  const PsHello greeting{.workers = 2};
  for (Shard* const one : {&shard, &replica}) {  // it was only busy
    CHECK(apply_to(*one, lost.header(PsOp::hello), std::as_bytes(std::span(&greeting, 1))).header.version == 1);
  }
  CHECK(steady.may_pull(table));
  steady.advance_clock();
  CHECK_FALSE(steady.may_pull(table));
  ShardCaller again(shard, 1, 2, 2);
  CHECK(again.clock() == 2);
}

TEST_CASE("the rows that were used least recently go") {
  Shard shard(0, 1, 0);
  ShardCaller worker(shard, 0, 1);
  TableSpec spec = table_of(1);
  spec.rows = 100;
  const auto table = worker.open(spec);
  const Keys hot = range(0, 20);
  for (std::uint64_t round = 0; round < 100; ++round) {
    worker.push(table, hot, Values(20, 1.0f));
    worker.push(table, range(1000 + round * 10, 10), Values(10, 1.0f));
    REQUIRE(stat(worker.stats(), "rows rows") <= 100);
  }
  CHECK(worker.pull(table, hot) == Values(20, 100.0f));
  CHECK(stat(worker.stats(), "rows rows") == 100);
  CHECK(stat(worker.stats(), "rows evicted") == 20 + 1000 - 100);
}

TEST_CASE("rows go when nobody has used them for as many clocks as they may be old") {
  const std::uint32_t max_age = GENERATE(1u, 7u);
  Shard shard(0, 1, 0);
  ShardCaller worker(shard, 0, 2), slow(shard, 1, 2);
  TableSpec spec = table_of(1);
  spec.max_age = max_age;
  const auto table = worker.open(spec);
  worker.push(table, range(0, 300), Values(300, 1.0f));
  for (std::uint32_t clock = 0; clock < 3 * max_age; ++clock) worker.advance_clock();
  CHECK(stat(worker.stats(), "rows rows") == 300);  // the slowest worker's clock counts
  for (std::uint32_t clock = 1; clock <= 2 * max_age; ++clock) {
    slow.advance_clock();
    worker.pull(table, range(0, 10));
    worker.push(table, range(10, 10), Values(10, 1.0f));
    if (clock <= max_age) REQUIRE(stat(worker.stats(), "rows rows") == 300);
  }
  slow.advance_clock();
  CHECK(stat(worker.stats(), "rows rows") == 20);
  CHECK(stat(worker.stats(), "rows evicted") == 280);
  CHECK(worker.pull(table, {0, 10, 20}) == Values{1, 1 + 2 * static_cast<float>(max_age), 0});
  Shard restored(0, 1, 0);  // what comes from a snapshot is not old
  add_state(restored, state_of(shard));
  PsRequest clock = slow.header(PsOp::clock);
  ++clock.clock;
  ++clock.sequence;
  apply_to(restored, clock);
  CHECK(stat(restored.stats(), "rows rows") == 20);
}

// Momentum by hand: the state's columns are as many as the row's, and a last one that counts.
bool by_hand(const RowsUpdate& of) {
  REQUIRE(of.state_columns == of.columns + 1);
  for (std::size_t row = 0; row < of.count; ++row) {
    float* const state = of.state + row * of.state_columns;
    ++state[of.columns];
    for (std::size_t i = 0; i < of.columns; ++i) {
      const float gradient = of.gradients[row * of.columns + i];
      if (gradient < 0) return false;
      state[i] = 0.5f * state[i] + gradient;
      of.rows[row * of.columns + i] -= of.learning_rate * state[i];
    }
  }
  return true;
}

TEST_CASE("a program's own update changes rows and their state, or nothing") {
  Shard shard(0, 1, 0);
  ShardCaller worker(shard, 0, 1);
  TableSpec spec = table_of(2);
  spec.optimizer = {.rule = UpdateRule::custom, .learning_rate = 1, .function = "by hand", .state = 3};
  CHECK_THROWS_AS(worker.open(spec), InvalidArgument);  // nobody has registered it
  register_update("by hand", by_hand);
  const auto table = worker.open(spec);
  worker.push(table, {1, 2, 1}, {1, 2, 10, 20, 3, 4});  // duplicates are added up first
  worker.push(table, {1}, {1, 1});
  const Values expected = {-4 - 3, -6 - 4, -10, -20};
  CHECK(worker.pull(table, {1, 2}) == expected);
  CHECK_THROWS_AS(worker.push(table, {2, 1}, {1, 1, 1, -1}), InvalidArgument);
  CHECK(worker.pull(table, {1, 2}) == expected);
  Shard replica(0, 1, 0);
  add_state(replica, state_of(shard));
  const Values again = apply_to(replica, worker.header(PsOp::pull, table, 2), payload_of(Keys{1, 2})).rows();
  CHECK(again == expected);

  spec.name = "synchronous";
  spec.consistency = Consistency::synchronous;
  const auto synchronous = worker.open(spec);
  worker.push(synchronous, {1}, {1, 1});
  worker.advance_clock();
  CHECK(worker.pull(synchronous, {1}) == Values{-1, -1});
  worker.push(synchronous, {1}, {-1, 1});
  CHECK_NOTHROW(worker.advance_clock());  // who ends a clock is not to blame
  CHECK_THROWS_AS(worker.pull(synchronous, {1}), InvalidArgument);
  CHECK_THROWS_AS(worker.push(synchronous, {1}, {1, 1}), InvalidArgument);
}

TEST_CASE("a push of as many rows as a table may keep is no more than it may keep") {
  Shard shard(0, 1, 0);
  ShardCaller worker(shard, 0, 1);
  TableSpec spec = table_of(1);
  spec.rows = 5000;
  const auto table = worker.open(spec);
  for (std::uint64_t round = 0; round < 5; ++round) {
    const Keys keys = range(round * 10'000, 5000);
    worker.push(table, keys, Values(5000, 1.0f));
    REQUIRE(worker.pull(table, keys) == Values(5000, 1.0f));
  }
  // One more is refused, and takes nothing away.
  CHECK_THROWS_AS(worker.push(table, range(100'000, 5001), Values(5001, 1.0f)), InvalidArgument);
  CHECK(worker.pull(table, range(40'000, 5000)) == Values(5000, 1.0f));
  Keys repeated = range(200'000, 5000);
  repeated.push_back(200'000);
  CHECK_NOTHROW(worker.push(table, repeated, Values(5001, 1.0f)));
}

TEST_CASE("a table that evicts does not need room for more") {
  TableSpec spec = table_of(1024);
  spec.rows = 500;
  Shard shard(0, 1, std::size_t{4} << 20);
  ShardCaller worker(shard, 0, 1);
  const auto table = worker.open(spec);
  const Values ones(100 * 1024, 1.0f);
  for (std::uint64_t round = 0; round < 30; ++round) {
    REQUIRE_NOTHROW(worker.push(table, range(round * 100, 100), ones));
  }
  CHECK(stat(worker.stats(), "rows rows") == 500);
  CHECK(stat(worker.stats(), "- bytes") <= 4 << 20);
}

TEST_CASE("memory has a limit") {
  Shard shard(0, 1, std::size_t{3} << 20);
  ShardCaller worker(shard, 0, 1);
  const auto table = worker.open(table_of(1000));
  const Values ones(64 * 1000, 1.0f);
  std::uint64_t round = 0;
  std::string why;
  try {
    for (; round < 30; ++round) worker.push(table, range(round * 64, 64), ones);
  } catch (const InvalidArgument& error) {
    why = error.what();
  }
  CHECK(why.find("HVD_SERVER_MEMORY") != std::string::npos);
  CHECK(stat(worker.stats(), "- bytes") <= 3 << 20);
  CHECK(stat(worker.stats(), "rows rows") == static_cast<long>(round * 64));
  CHECK_NOTHROW(worker.push(table, range(0, 64), ones));
}

TEST_CASE("a row needs memory once, however often a push names it or it is filled again") {
  Shard shard(0, 1, std::size_t{400} << 10);
  ShardCaller worker(shard, 0, 1);
  const auto table = worker.open(table_of(1000));
  CHECK_NOTHROW(worker.push(table, Keys(120, 7), Values(std::size_t{120} * 1000, 1.0f)));
  CHECK(worker.pull(table, {7})[0] == 120);
  CHECK(stat(worker.stats(), "rows rows") == 1);
  TableSpec spec = dense_of(table_of(1000), 60);
  spec.name = "dense";
  const auto dense = worker.open(spec);
  const Bytes values = payload_of(range(0, 60), Values(std::size_t{60} * 1000, 1.0f));
  CHECK_NOTHROW(apply_to(shard, worker.header(PsOp::fill, dense, 60), values));
  CHECK_NOTHROW(apply_to(shard, worker.header(PsOp::fill, dense, 60), values));
}

std::vector<Bytes> joined(std::vector<std::vector<Bytes>> states) {
  std::vector<Bytes> all;
  for (auto& state : states) std::ranges::move(state, std::back_inserter(all));
  return all;
}

TEST_CASE("state is read by as many shards as there are, each its part") {
  const Keys keys = range(0, 4000);
  Values gradients(keys.size() * 3);
  for (std::size_t i = 0; i < gradients.size(); ++i) gradients[i] = static_cast<float>(i % 97) - 48;
  for (const bool dense : {false, true}) {
    TableSpec spec = table_of(3);
    spec.optimizer = {.rule = UpdateRule::adam, .learning_rate = 0.1f};
    spec.initializer = {.kind = InitializerSpec::Kind::uniform, .a = -1, .b = 1, .seed = 5};
    spec.dense = dense;
    spec.rows = dense ? keys.size() : 0;
    for (const auto& [written, read] : {std::pair{1u, 3u}, {2u, 2u}, {3u, 1u}, {2u, 3u}}) {
      std::vector<std::vector<Bytes>> states;
      std::vector<Values> expected(keys.size());
      const auto push_own = [&](ShardCaller& worker, std::uint16_t table, std::uint32_t number, std::uint32_t count) {
        Keys own;
        Values values;
        for (const std::uint64_t key : keys) {
          if (shard_of(spec, key, count) != number) continue;
          own.push_back(key);
          values.insert(values.end(), &gradients[key * 3], &gradients[key * 3] + 3);
        }
        worker.push(table, own, values);
        const Values rows = worker.pull(table, own);
        for (std::size_t i = 0; i < own.size(); ++i) {
          expected[own[i]].assign(&rows[i * 3], &rows[i * 3] + 3);
        }
        return std::pair(own, rows);
      };
      for (std::uint32_t number = 0; number < written; ++number) {
        Shard shard(number, written, 0);
        ShardCaller worker(shard, 0, 1);
        push_own(worker, worker.open(spec), number, written);
        states.push_back(state_of(shard));
      }
      const auto first = expected;
      const auto parts = joined(states);
      for (std::uint32_t number = 0; number < read; ++number) {
        Shard shard(number, read, 0);
        add_state(shard, parts);
        ShardCaller worker(shard, 0, 1, 2);
        const auto table = worker.open(spec);
        std::size_t own = 0;
        for (const std::uint64_t key : keys) own += shard_of(spec, key, read) == number;
        CHECK(stat(worker.stats(), "rows rows") == static_cast<long>(own));
        for (const std::uint64_t key : keys) {
          if (shard_of(spec, key, read) == number) REQUIRE(worker.pull(table, {key}) == first[key]);
        }
        push_own(worker, table, number, read);  // with the optimizer's state
      }
      Shard plain(0, 1, 0);
      ShardCaller worker(plain, 0, 1);
      const auto table = worker.open(spec);
      for (int i = 0; i < 2; ++i) worker.push(table, keys, gradients);
      const Values rows = worker.pull(table, keys);
      for (const std::uint64_t key : keys) REQUIRE(expected[key] == Values(&rows[key * 3], &rows[key * 3] + 3));
    }
  }
}

TEST_CASE("a shard's own state has its workers, and what waits for them") {
  Shard shard(1, 2, 0);
  ShardCaller one(shard, 0, 2), other(shard, 1, 2);
  const auto table = one.open(table_of(1, Consistency::synchronous));
  one.push(table, {1}, {1});
  one.advance_clock();
  other.push(table, {1}, {2});
  Shard again(1, 2, 0);
  add_state(again, state_of(shard));
  CHECK(again.stats().find("- min_clock 0") != std::string::npos);
  PsRequest repeated = other.header(PsOp::push, table, 1);  // with a number that was applied
  apply_to(again, repeated, payload_of(Keys{1}, Values{2}));
  PsRequest clock = other.header(PsOp::clock);
  clock.clock = 1;
  clock.sequence += 1;
  CHECK(apply_to(again, clock).header.min_clock == 1);
  CHECK(apply_to(again, one.header(PsOp::pull, table, 1), payload_of(Keys{1})).rows() == Values{3});
}

TEST_CASE("a snapshot that is restored into a running job adds rows, and leaves its workers alone") {
  Shard earlier(0, 1, 0);
  {
    ShardCaller worker(earlier, 0, 1);
    const auto table = worker.open(table_of(1));
    for (int i = 0; i < 50; ++i) worker.push(table, {1}, {1});
    for (int i = 0; i < 10; ++i) worker.advance_clock();
  }
  Shard shard(0, 1, 0);
  ShardCaller worker(shard, 0, 1);
  const auto table = worker.open(table_of(1));
  add_state(shard, state_of(earlier));
  CHECK(worker.pull(table, {1}) == Values{50});
  worker.push(table, {1}, {1});  // numbers that the earlier job's worker has had
  CHECK(worker.pull(table, {1}) == Values{51});
  CHECK(worker.advance_clock().min_clock == 1);
}

TEST_CASE("state of another table of the same name is refused") {
  Shard earlier(0, 1, 0);
  ShardCaller writer(earlier, 0, 1);
  writer.push(writer.open(table_of(2)), {1, 2}, {1, 2, 3, 4});
  Shard shard(0, 1, 0);
  ShardCaller worker(shard, 0, 1);
  const auto table = worker.open(table_of(1));
  CHECK_THROWS_AS(add_state(shard, state_of(earlier)), Mismatch);
  CHECK(stat(worker.stats(), "rows rows") == 0);
  CHECK(worker.pull(table, {1}) == Values{0});
}

TEST_CASE("malformed state is refused") {
  Shard shard(0, 1, 0);
  ShardCaller worker(shard, 0, 1);
  const auto table = worker.open(table_of(2, Consistency::synchronous));
  worker.push(table, {1, 2}, {1, 2, 3, 4});
  const auto parts = state_of(shard);
  for (std::size_t size = 0; size < parts[0].size(); ++size) {
    Shard other(0, 1, 0);
    CHECK_THROWS_AS(other.read_state(std::span(parts[0].data(), size)), Internal);
    CHECK_FALSE(other.is_over());
    CHECK(other.workers().slowest() == -1);  // no workers
  }
  for (std::size_t part = 1; part < parts.size(); ++part) {
    Shard other(0, 1, 0);
    CHECK_THROWS_AS(other.read_state(parts[part]), Internal);  // of a table that it does not have
  }
}

TEST_CASE("staleness counts the updates since a worker's own pull") {
  Shard shard(0, 1, 0);
  ShardCaller one(shard, 0, 3), other(shard, 1, 3), never(shard, 2, 3);
  const auto table = one.open(table_of(1));
  for (int i = 0; i < 1000; ++i) other.push(table, {1}, {1});
  one.pull(table, {1});
  never.push(table, {1}, {1});  // it has pulled nothing that could be stale
  CHECK(stat(one.stats(), "rows staleness_worst") == 0);
  one.push(table, {1}, {1});
  CHECK(stat(one.stats(), "rows staleness_worst") == 1);
  for (int round = 0; round < 10; ++round) {
    one.pull(table, {1});
    for (int i = 0; i < 3; ++i) never.push(table, {1}, {1});
    one.push(table, {1}, {1});
  }
  CHECK(stat(one.stats(), "rows staleness_worst") == 3);
  CHECK(stat(one.stats(), "rows staleness_median") == 3);
  Staleness staleness;
  CHECK(staleness.median() == 0);
  for (const std::uint64_t updates : {5u, 1u, 9u, 100'000u, 100'000u}) staleness.add(updates);
  CHECK(staleness.median() == 9);
  staleness.add(100'000);
  staleness.add(100'000);
  CHECK(staleness.median() == 256);
  CHECK(staleness.worst() == 100'000);
}

TEST_CASE("stats are lines of a table, a metric and a number") {
  Shard shard(0, 1, 0);
  ShardCaller worker(shard, 0, 1);
  const auto table = worker.open(table_of(1));
  worker.push(table, {1, 2}, {1, 1});
  worker.pull(table, {1});
  worker.pull(table, {7});
  const std::string text = worker.stats();
  CHECK(stat(text, "rows rows") == 2);
  CHECK(stat(text, "rows updates") == 1);
  CHECK(stat(text, "rows pushes") == 1);
  CHECK(stat(text, "rows pulls") == 2);
  CHECK(stat(text, "rows evicted") == 0);
  CHECK(stat(text, "rows bytes") == stat(text, "- bytes"));
  CHECK(stat(text, "- min_clock") == 0);
}

TEST_CASE("a learning rate changes once, and is not what tables are compared by") {
  Shard shard(0, 1, 0);
  ShardCaller worker(shard, 0, 1);
  TableSpec spec = table_of(1);
  spec.optimizer = {.rule = UpdateRule::sgd, .learning_rate = 1};
  const auto table = worker.open(spec);
  worker.push(table, {1}, {1});
  worker.set_learning_rate(table, 0.5f);
  worker.push(table, {1}, {1});
  CHECK(worker.pull(table, {1}) == Values{-1.5f});
  CHECK(worker.open(spec) == table);
  spec.width = 2;
  CHECK_THROWS_AS(worker.open(spec), Mismatch);
}

TEST_CASE("shard: workers of an elastic job come and go, and are not waited for before or after") {
  Shard shard(0, 1, 0);
  ShardCaller second(shard, 5, 0);  // by the number of its process
  TableSpec spec = table_of(1, Consistency::synchronous);
  spec.average = true;
  spec.optimizer = {.rule = UpdateRule::add};
  const auto table = second.open(spec);
  CHECK(shard.workers().present() == std::vector<std::uint32_t>{5});
  second.push(table, {0}, {4});
  second.advance_clock();
  REQUIRE(second.may_pull(table));  // of processes 0 to 4 it knows nothing
  CHECK(second.pull(table, {0}) == std::vector<float>{4});

  ShardCaller third(shard, 9, 0);
  CHECK(third.clock() == 1);  // begins where the slowest is
  third.open(spec);
  second.push(table, {0}, {6});
  second.advance_clock();
  CHECK_FALSE(second.may_pull(table));
  CHECK(shard.workers().slowest() == 9);
  third.push(table, {0}, {2});
  third.advance_clock();
  CHECK(second.pull(table, {0}) == std::vector<float>{8});  // the mean of two

  second.push(table, {0}, {10});
  third.push(table, {0}, {20});
  third.advance_clock();
  shard.forget(5);  // was lost before the end of its clock, and has pushed
  REQUIRE(third.may_pull(table));
  CHECK(third.pull(table, {0}) == std::vector<float>{23});
  third.leave();
  CHECK_FALSE(shard.is_over());

  Shard copy(0, 1, 0);
  for (const Bytes& part : state_of(shard)) copy.read_state(part);
  CHECK_FALSE(copy.is_over());
  ShardCaller fourth(copy, 12, 0);
  CHECK(fourth.clock() == 3);
  CHECK(copy.workers().present() == std::vector<std::uint32_t>{12});
}

}  // namespace
}  // namespace hvd
