// Newcomers: when they join, and the place that one can expect.
#include <variant>

#include "launcher/membership/membership.h"
#include "tests/support/catch.h"

using namespace hvd;
using namespace hvd::launcher;

TEST_CASE("membership: a newcomer expects the last rank, and the slot that is free on its host") {
  Membership membership({.num_proc = 4, .min_np = 1, .max_np = 8, .cooldown_min = 0s}, TimePoint());
  const auto now = TimePoint();
  membership.hosts_changed({{"a", 3}, {"b", 1}}, now);
  CHECK(membership.processes().expected_rank_of(0) == ExpectedRank());  // the job has not begun
  for (const int process : {0, 1, 2, 3}) membership.process_arrived(process, now);
  REQUIRE(membership.running());
  membership.process_ended(1, ProcessEnd::failed, "", now);  // process 4 is started in its slot
  CHECK(membership.processes().expected_rank_of(4) ==
        ExpectedRank{.size = 4, .local_rank = 1, .local_size = 3, .cross_rank = 0, .cross_size = 2});
  membership.hosts_changed({{"a", 3}, {"b", 2}, {"c", 1}}, now);
  CHECK(membership.processes().expected_rank_of(5) ==
        ExpectedRank{.size = 4, .local_rank = 1, .local_size = 2, .cross_rank = 1, .cross_size = 2});
  CHECK(membership.processes().expected_rank_of(6) ==
        ExpectedRank{.size = 4, .local_rank = 0, .local_size = 1, .cross_rank = 2, .cross_size = 3});
  CHECK(membership.processes().expected_rank_of(17) == ExpectedRank());  // no process
}

TEST_CASE("membership: newcomers that start together join together, unless one takes too long") {
  const bool all_arrive = GENERATE(true, false);
  Membership membership({.num_proc = 1, .min_np = 1, .max_np = 4}, TimePoint());
  const auto now = TimePoint();
  membership.hosts_changed({{"a", 1}}, now);
  membership.process_arrived(0, now);
  membership.hosts_changed({{"a", 1}, {"b", 2}}, now);
  membership.process_arrived(1, now + 1s);
  CHECK(membership.starting_newcomers() == 1);
  membership.take_actions();
  membership.time_passed(now + kNewcomerWait);
  CHECK(membership.take_actions().empty());
  CHECK(membership.next_deadline() == now + 1s + kNewcomerWait);
  if (all_arrive) {
    membership.process_arrived(2, now + kNewcomerWait);
  } else {
    membership.time_passed(now + 1s + kNewcomerWait);
  }
  const auto actions = membership.take_actions();
  REQUIRE(actions.size() == 1);
  CHECK(std::get<AnnounceChange>(actions[0]) == AnnounceChange{.epoch = 1, .adds = true});
  CHECK(membership.next_deadline() == std::nullopt);
}

// They hold all slots, so nobody else can come: they go on, and do not wait for others.
TEST_CASE("membership: all ranks are to leave, one after the other") {
  Membership membership({.num_proc = 2, .min_np = 1, .max_np = 2, .cooldown_min = 0s}, TimePoint());
  const auto now = TimePoint();
  membership.hosts_changed({{"a", 2}}, now);
  for (const int process : {0, 1}) membership.process_arrived(process, now);
  membership.take_actions();
  membership.process_preempted(0, now);
  CHECK(std::get<AnnounceChange>(membership.take_actions().at(0)) == AnnounceChange{.epoch = 1, .removes = true});
  membership.process_preempted(1, now);
  for (const int process : {0, 1}) membership.process_arrived(process, now);
  CHECK(membership.running());
  CHECK(membership.processes().epoch() == 2);
  CHECK(std::get<BeginEpoch>(membership.take_actions().back()).processes == std::vector{0, 1});

  // Once others can come they are replaced: one of them brings the state.
  membership.hosts_changed({{"a", 2}, {"b", 2}}, now);
  for (const int process : {2, 3}) membership.process_arrived(process, now);
  CHECK(std::get<AnnounceChange>(membership.take_actions().back()) == AnnounceChange{.epoch = 2, .adds = true});
  for (const int process : {0, 1}) membership.process_arrived(process, now);
  CHECK(std::get<BeginEpoch>(membership.take_actions().back()).processes == std::vector{0, 2});
  for (const int process : {0, 2}) membership.process_synchronized(process, now);
  const auto actions = membership.take_actions();
  REQUIRE(actions.size() == 2);
  CHECK(std::get<DismissProcess>(actions[0]) == DismissProcess{1});
  CHECK(std::get<AnnounceChange>(actions[1]) == AnnounceChange{.epoch = 3, .adds = true, .removes = true});
  for (const int process : {0, 2}) membership.process_arrived(process, now);
  CHECK(std::get<BeginEpoch>(membership.take_actions().back()).processes == std::vector{2, 3});
}

// They were told to leave, and are the only ones with the job's state: what they have finished is the job's result.
TEST_CASE("membership: ranks that are all to leave finish before others have come") {
  Membership membership({.num_proc = 2, .min_np = 1, .max_np = 4, .cooldown_min = 0s}, TimePoint());
  const auto now = TimePoint();
  membership.hosts_changed({{"a", 2}}, now);
  for (const int process : {0, 1}) membership.process_arrived(process, now);
  membership.hosts_changed({{"b", 2}}, now);
  REQUIRE(std::holds_alternative<StartProcess>(membership.take_actions().back()));
  membership.process_ended(0, ProcessEnd::finished, "", now);
  membership.process_arrived(2, now);
  CHECK_FALSE(membership.over());
  membership.process_ended(1, ProcessEnd::finished, "", now);
  CHECK(std::get<EndJob>(membership.take_actions().back()) == EndJob{});
}

// As when a script does not name a host for a moment.
TEST_CASE("membership: ranks stay if their host is named again before they have left") {
  Membership membership({.num_proc = 2, .min_np = 1, .max_np = 2}, TimePoint());
  const auto now = TimePoint();
  membership.hosts_changed({{"a", 1}, {"b", 1}}, now);
  for (const int process : {0, 1}) membership.process_arrived(process, now);
  membership.take_actions();
  membership.hosts_changed({{"a", 1}}, now);
  CHECK(std::get<AnnounceChange>(membership.take_actions().at(0)) == AnnounceChange{.epoch = 1, .removes = true});
  membership.hosts_changed({{"a", 1}, {"b", 1}}, now);
  for (const int process : {0, 1}) membership.process_arrived(process, now);
  const auto actions = membership.take_actions();
  REQUIRE(actions.size() == 2);
  CHECK(std::get<BeginEpoch>(actions[1]).processes == std::vector{0, 1});
}

TEST_CASE("membership: a newcomer that ends before it has arrived, without a failure, is not replaced at once") {
  Membership membership({.num_proc = 1, .min_np = 1, .max_np = 2}, TimePoint());
  const auto now = TimePoint();
  membership.hosts_changed({{"a", 1}}, now);
  membership.process_arrived(0, now);
  membership.hosts_changed({{"a", 2}}, now);
  REQUIRE(std::get<StartProcess>(membership.take_actions().back()).process == 1);
  membership.process_ended(1, ProcessEnd::finished, "", now);
  CHECK(membership.take_actions().empty());
  CHECK(membership.next_deadline() == now + 1s);
  membership.time_passed(now + 1s);
  CHECK(std::get<StartProcess>(membership.take_actions().at(0)).process == 2);
}
