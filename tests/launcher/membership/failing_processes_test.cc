// Processes that have said that they fail, and have not ended yet.
#include <variant>

#include "launcher/membership/membership.h"
#include "tests/support/catch.h"

using namespace hvd;
using namespace hvd::launcher;

TEST_CASE(
    "membership: nobody waits for a process that has said that it fails, and its slot is free once it has ended") {
  Membership membership({.num_proc = 3, .min_np = 1, .max_np = 3, .cooldown_min = 0s}, TimePoint());
  const auto now = TimePoint();
  membership.hosts_changed({{"a", 3}}, now);
  for (const int process : {0, 1, 2}) membership.process_arrived(process, now);
  membership.take_actions();
  membership.process_fails(0, "rank 0 raised ValueError", now);
  const auto broken = membership.take_actions();
  REQUIRE(broken.size() == 1);
  CHECK(std::get<BreakEpoch>(broken[0]) == BreakEpoch{.epoch = 1, .cause = "rank 0 raised ValueError"});
  for (const int process : {1, 2}) membership.process_arrived(process, now);
  const auto begun = membership.take_actions();
  REQUIRE(begun.size() == 1);
  CHECK(std::get<BeginEpoch>(begun[0]).processes == std::vector{1, 2});
  membership.process_ended(0, ProcessEnd::failed, "rank 0 raised ValueError", now);
  const auto started = membership.take_actions();
  REQUIRE(started.size() == 1);
  CHECK(std::get<StartProcess>(started[0]) == StartProcess{.process = 3, .host = "a", .slot = 0});
  CHECK(membership.running());
}

TEST_CASE("membership: a job whose processes all fail ends once they have ended") {
  Membership membership({.num_proc = 2, .min_np = 1, .max_np = 2}, TimePoint());
  const auto now = TimePoint();
  membership.hosts_changed({{"a", 2}}, now);
  for (const int process : {0, 1}) membership.process_arrived(process, now);
  for (const int process : {0, 1}) membership.process_fails(process, "it fails", now);
  CHECK_FALSE(membership.over());
  membership.process_ended(0, ProcessEnd::failed, "it fails", now);
  CHECK_FALSE(membership.over());
  membership.process_ended(1, ProcessEnd::failed, "it fails", now);
  CHECK(membership.over());
}

TEST_CASE("membership: a job that may not change its ranks any more ends once the process that fails has ended") {
  Membership membership({.num_proc = 2, .min_np = 1, .max_np = 2, .reset_limit = 0}, TimePoint());
  const auto now = TimePoint();
  membership.hosts_changed({{"a", 2}}, now);
  for (const int process : {0, 1}) membership.process_arrived(process, now);
  membership.process_fails(1, "it fails", now);
  membership.process_arrived(0, now);
  CHECK_FALSE(membership.over());
  membership.process_ended(1, ProcessEnd::failed, "it fails", now);
  CHECK(membership.over());
}
