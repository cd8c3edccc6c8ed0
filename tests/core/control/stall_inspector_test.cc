#include "core/control/coordinator/stall_inspector.h"

#include "tests/core/control/specs.h"
#include "tests/core/control/times.h"
#include "tests/support/catch.h"

using namespace hvd;

namespace {

WaitingOperation waiting(std::string name, Duration since, std::vector<int> missing) {
  return {std::move(name), Collective::allreduce, kStart + since, std::move(missing)};
}

}  // namespace

TEST_CASE("Ranks are described, and many of them as ranges") {
  const StallInspector inspector(0s, 0s, describe_test_rank);
  CHECK(inspector.describe({2}) == "rank 2 on host-c");
  CHECK(inspector.describe({1, 2}) == "rank 1 on host-b and rank 2 on host-c");
  CHECK(inspector.describe({0, 1, 2}) == "rank 0 on host-a, rank 1 on host-b and rank 2 on host-c");
  CHECK(inspector.describe({1, 2, 3, 7, 8, 10}) == "ranks 1-3, 7, 8, 10");
  CHECK(inspector.describe({4, 5, 6, 7}) == "ranks 4-7");
  CHECK(StallInspector(0s, 0s, describe_test_rank, {3, 4, 5, 6, 9}).describe({1, 2, 3, 4}) == "ranks 4-6, 9");
}

TEST_CASE("The deadline follows the oldest operation and is gone when nothing waits") {
  StallInspector inspector(10s, 25s, describe_test_rank);
  CHECK(inspector.next_check() == Deadline::max());
  inspector.started(kStart);
  inspector.started(kStart + 3s);
  CHECK(inspector.next_check() == kStart + 10s);
  inspector.ended();
  CHECK(inspector.next_check() == kStart + 10s);
  inspector.ended();
  CHECK(inspector.next_check() == Deadline::max());
}

TEST_CASE("Zero turns warnings and limit off, and a huge setting does not wrap around") {
  StallInspector off(0s, 0s, describe_test_rank);
  off.started(kStart);
  CHECK(off.next_check() == Deadline::max());
  StallInspector limit_only(0s, 5s, describe_test_rank);
  limit_only.started(kStart);
  CHECK(limit_only.next_check() == kStart + 5s);
  StallInspector huge(Duration::max(), Duration::max(), describe_test_rank);
  huge.started(kStart);
  CHECK(huge.next_check() == Deadline::max());
}

TEST_CASE("A burst gives one warning per interval") {
  StallInspector inspector(10s, 0s, describe_test_rank);
  inspector.started(kStart);
  inspector.started(kStart + 2s);
  inspector.started(kStart + 9s);
  const std::vector<WaitingOperation> operations = {waiting("a", 0s, {1}), waiting("b", 2s, {1}),
                                                    waiting("c", 9s, {2})};
  auto found = inspector.inspect(operations, kStart + 10s);
  CHECK(found.warning ==
        "stalled: waiting for rank 1 on host-b to submit allreduce 'a' (10.0 s), allreduce 'b' (8.0 s)");
  CHECK(inspector.next_check() == kStart + 20s);

  CHECK(inspector.inspect(operations, kStart + 15s).warning.empty());
  CHECK(inspector.next_check() == kStart + 20s);

  found = inspector.inspect(operations, kStart + 20s);
  CHECK(found.warning ==
        "stalled: waiting for rank 1 on host-b to submit allreduce 'a' (20.0 s), allreduce 'b' (18.0 s); "
        "waiting for rank 2 on host-c to submit allreduce 'c' (11.0 s)");
  CHECK(found.expired.empty());
}

TEST_CASE("What has not changed is told once, what changes ever more seldom") {
  StallInspector inspector(10s, 0s, describe_test_rank);
  inspector.started(kStart);
  std::vector<WaitingOperation> operations = {waiting("a", 0s, {1, 2})};
  const auto told_at = [&](Duration age) { return !inspector.inspect(operations, kStart + age).warning.empty(); };
  CHECK(told_at(10s));
  CHECK_FALSE(told_at(20s));
  operations[0].missing = {1};
  CHECK_FALSE(told_at(25s));
  CHECK(told_at(30s));
  operations[0].missing = {2};
  CHECK_FALSE(told_at(40s));
  CHECK(told_at(50s));
  operations[0].missing = {3};
  CHECK_FALSE(told_at(89s));
  CHECK(told_at(90s));
  inspector.ended();

  inspector.started(kStart + 300s);  // another stall
  operations = {waiting("a", 300s, {3})};
  CHECK(told_at(310s));
  operations[0].missing = {1};
  CHECK(told_at(320s));
}

TEST_CASE("A check that comes too early says nothing and is made again") {
  StallInspector inspector(10s, 0s, describe_test_rank);
  inspector.started(kStart);
  inspector.started(kStart + 6s);
  inspector.ended();  // the first one
  const std::vector<WaitingOperation> left = {waiting("b", 6s, {1})};
  CHECK(inspector.inspect(left, kStart + 10s).warning.empty());
  CHECK(inspector.next_check() == kStart + 16s);
}

TEST_CASE("At most six names") {
  StallInspector inspector(10s, 0s, describe_test_rank);
  std::vector<WaitingOperation> operations;
  for (int i = 0; i < 9; ++i) {
    inspector.started(kStart);
    operations.push_back(waiting("t" + std::to_string(i), 0s, {1}));
  }
  const std::string warning = inspector.inspect(operations, kStart + 10s).warning;
  CHECK_THAT(warning, Catch::Matchers::Contains("'t5'") && !Catch::Matchers::Contains("'t6'") &&
                          Catch::Matchers::EndsWith("; and 3 more"));
}

TEST_CASE("What reaches the limit expires, the rest is checked later") {
  StallInspector inspector(0s, 30s, describe_test_rank);
  inspector.started(kStart);
  inspector.started(kStart + 5s);
  const std::vector<WaitingOperation> operations = {waiting("a", 0s, {1}), waiting("b", 5s, {1})};
  CHECK(inspector.inspect(operations, kStart + 29s).expired.empty());
  CHECK(inspector.next_check() == kStart + 30s);
  CHECK(inspector.inspect(operations, kStart + 30s).expired == std::vector<std::size_t>{0});
  CHECK(inspector.next_check() == kStart + 35s);
  CHECK(
      inspector.status_of_expired(operations[0], kStart + 30s) ==
      Status(StatusCode::timeout, "allreduce 'a': given up after 30.0 s of waiting for rank 1 on host-b to submit it"));
}
