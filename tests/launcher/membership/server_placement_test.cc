#include "launcher/membership/server_placement.h"

#include "tests/support/catch.h"

namespace hvd::launcher {
namespace {

using Starts = std::vector<StartServer>;

const TimePoint t0 = Clock::now();

TEST_CASE("server placement: servers are dealt to the hosts once these have enough slots") {
  ServerPlacement placement(3, 4);
  placement.hosts_changed({{"h1", 2}});
  CHECK(placement.take_due(t0).empty());
  CHECK_FALSE(placement.next_deadline());
  placement.hosts_changed({{"h1", 2}, {"h2", 2}, {"h3", 0}});
  CHECK(placement.take_due(t0) == Starts{{0, 0, "h1"}, {1, 0, "h2"}, {2, 0, "h1"}});
  CHECK(placement.take_due(t0).empty());
  placement.hosts_changed({{"h1", 2}});  // servers stay where they are
  CHECK(placement.take_due(t0).empty());
}

TEST_CASE(
    "server placement: a failure before there are enough slots, after which a job begins with fewer, starts them") {
  ServerPlacement after_process(1, 4), after_host(1, 4);
  for (ServerPlacement* placement : {&after_process, &after_host}) placement->hosts_changed({{"h1", 2}, {"h2", 1}});
  after_process.process_failed();
  CHECK(after_process.take_due(t0) == Starts{{0, 0, "h1"}});
  after_host.host_lost("h1", t0);
  CHECK(after_host.take_due(t0) == Starts{{0, 0, "h2"}});
}

TEST_CASE(
    "server placement: a server that fails is started again on its host, after a growing delay, and given up at last") {
  ServerPlacement placement(2, 1);
  placement.hosts_changed({{"h1", 1}, {"h2", 1}});
  placement.take_due(t0);
  TimePoint now = t0;
  Duration last{};
  for (int failure = 1; failure <= ServerPlacement::kMaxFailures; ++failure) {
    const auto again = placement.ended(1, now);
    REQUIRE(again);
    CHECK(*again - now >= last);
    CHECK(*again - now <= 1s);
    last = *again - now;
    if (last > Duration::zero()) CHECK(placement.take_due(*again - 1ns).empty());
    CHECK((placement.next_deadline() == again));
    now = *again;
    CHECK(placement.take_due(now) == Starts{{1, failure, "h2"}});
  }
  CHECK(last == 1s);
  CHECK_FALSE(placement.ended(1, now));
  CHECK(placement.take_due(now + 1h).empty());
  CHECK(placement.ended(0, now));  // the other one is not concerned
}

TEST_CASE("server placement: a server that has run for long begins anew") {
  ServerPlacement placement(1, 0);
  placement.hosts_changed({{"h1", 1}});
  placement.started(0, "h1", t0);
  TimePoint now = t0;
  for (int failure = 0; failure < 50; ++failure) {
    now += 61s;
    CHECK((placement.ended(0, now) == now));  // at once
    CHECK(placement.take_due(now) == Starts{{0, failure + 1, "h1"}});
  }
}

TEST_CASE("server placement: servers leave a preempted host, unless all are") {
  ServerPlacement placement(2, 2);
  placement.hosts_changed({{"h1", 1}, {"h2", 1}});
  placement.take_due(t0);
  CHECK_FALSE(placement.moves_from("h2"));
  placement.host_preempted("h2");
  placement.hosts_changed({{"h1", 1}, {"h2", 1}});  // though it is still named
  CHECK(placement.moves_from("h2"));
  CHECK_FALSE(placement.moves_from("h1"));
  placement.ended(1, t0);
  CHECK(placement.take_due(t0) == Starts{{1, 1, "h1"}});
  placement.host_preempted("h1");
  CHECK_FALSE(placement.moves_from("h1"));
  placement.ended(1, t0);
  CHECK(placement.take_due(t0 + 1s) == Starts{{1, 2, "h1"}});
  placement.host_lost("h2", t0);
  placement.hosts_changed({{"h1", 1}, {"h2", 1}});  // another machine with that name
  CHECK(placement.moves_from("h1"));
}

TEST_CASE("server placement: the servers of a lost host go to the others, and wait if there is none") {
  ServerPlacement placement(3, 3);
  placement.hosts_changed({{"h1", 1}, {"h2", 1}, {"h3", 1}});
  placement.take_due(t0);
  placement.host_lost("h2", t0);
  CHECK(placement.take_due(t0) == Starts{{1, 1, "h1"}});
  REQUIRE(placement.ended(1, t0));
  placement.host_lost("h1", t0);  // one has run there, and one has just ended
  CHECK(placement.take_due(t0) == Starts{{0, 1, "h3"}, {1, 2, "h3"}});
  placement.host_lost("h3", t0);
  CHECK(placement.take_due(t0).empty());
  CHECK_FALSE(placement.next_deadline());
  placement.hosts_changed({{"h2", 1}});  // fewer slots than at the beginning
  CHECK(placement.take_due(t0) == Starts{{0, 2, "h2"}, {1, 3, "h2"}, {2, 1, "h2"}});
}

}  // namespace
}  // namespace hvd::launcher
