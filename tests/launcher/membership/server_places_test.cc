#include "launcher/membership/server_places.h"

#include "tests/support/catch.h"

namespace hvd::launcher {
namespace {

using Starts = std::vector<StartServer>;

const TimePoint t0 = Clock::now();

TEST_CASE("server places: servers are dealt to the hosts once these have enough slots") {
  ServerPlaces places(3, 4);
  places.hosts_changed({{"h1", 2}});
  CHECK(places.take_due(t0).empty());
  CHECK_FALSE(places.next_deadline());
  places.hosts_changed({{"h1", 2}, {"h2", 2}, {"h3", 0}});
  CHECK(places.take_due(t0) == Starts{{0, 0, "h1"}, {1, 0, "h2"}, {2, 0, "h1"}});
  CHECK(places.take_due(t0).empty());
  places.hosts_changed({{"h1", 2}});  // servers stay where they are
  CHECK(places.take_due(t0).empty());
}

TEST_CASE("server places: a failure before there are enough slots, after which a job begins with fewer, starts them") {
  ServerPlaces after_process(1, 4), after_host(1, 4);
  for (ServerPlaces* places : {&after_process, &after_host}) places->hosts_changed({{"h1", 2}, {"h2", 1}});
  after_process.process_failed();
  CHECK(after_process.take_due(t0) == Starts{{0, 0, "h1"}});
  after_host.host_lost("h1", t0);
  CHECK(after_host.take_due(t0) == Starts{{0, 0, "h2"}});
}

TEST_CASE(
    "server places: a server that fails is started again on its host, after a growing delay, and given up at last") {
  ServerPlaces places(2, 1);
  places.hosts_changed({{"h1", 1}, {"h2", 1}});
  places.take_due(t0);
  TimePoint now = t0;
  Duration last{};
  for (int failure = 1; failure <= ServerPlaces::kMaxFailures; ++failure) {
    const auto again = places.ended(1, now);
    REQUIRE(again);
    CHECK(*again - now >= last);
    CHECK(*again - now <= 1s);
    last = *again - now;
    if (last > Duration::zero()) CHECK(places.take_due(*again - 1ns).empty());
    CHECK((places.next_deadline() == again));
    now = *again;
    CHECK(places.take_due(now) == Starts{{1, failure, "h2"}});
  }
  CHECK(last == 1s);
  CHECK_FALSE(places.ended(1, now));
  CHECK(places.take_due(now + 1h).empty());
  CHECK(places.ended(0, now));  // the other one is not concerned
}

TEST_CASE("server places: a server that has run for long begins anew") {
  ServerPlaces places(1, 0);
  places.hosts_changed({{"h1", 1}});
  places.started(0, "h1", t0);
  TimePoint now = t0;
  for (int failure = 0; failure < 50; ++failure) {
    now += 61s;
    CHECK((places.ended(0, now) == now));  // at once
    CHECK(places.take_due(now) == Starts{{0, failure + 1, "h1"}});
  }
}

TEST_CASE("server places: servers leave a preempted host, unless all are") {
  ServerPlaces places(2, 2);
  places.hosts_changed({{"h1", 1}, {"h2", 1}});
  places.take_due(t0);
  CHECK_FALSE(places.moves_from("h2"));
  places.host_preempted("h2");
  places.hosts_changed({{"h1", 1}, {"h2", 1}});  // though it is still named
  CHECK(places.moves_from("h2"));
  CHECK_FALSE(places.moves_from("h1"));
  places.ended(1, t0);
  CHECK(places.take_due(t0) == Starts{{1, 1, "h1"}});
  places.host_preempted("h1");
  CHECK_FALSE(places.moves_from("h1"));
  places.ended(1, t0);
  CHECK(places.take_due(t0 + 1s) == Starts{{1, 2, "h1"}});
  places.host_lost("h2", t0);
  places.hosts_changed({{"h1", 1}, {"h2", 1}});  // another machine with that name
  CHECK(places.moves_from("h1"));
}

TEST_CASE("server places: the servers of a lost host go to the others, and wait if there is none") {
  ServerPlaces places(3, 3);
  places.hosts_changed({{"h1", 1}, {"h2", 1}, {"h3", 1}});
  places.take_due(t0);
  places.host_lost("h2", t0);
  CHECK(places.take_due(t0) == Starts{{1, 1, "h1"}});
  REQUIRE(places.ended(1, t0));
  places.host_lost("h1", t0);  // one has run there, and one has just ended
  CHECK(places.take_due(t0) == Starts{{0, 1, "h3"}, {1, 2, "h3"}});
  places.host_lost("h3", t0);
  CHECK(places.take_due(t0).empty());
  CHECK_FALSE(places.next_deadline());
  places.hosts_changed({{"h2", 1}});  // fewer slots than at the beginning
  CHECK(places.take_due(t0) == Starts{{0, 2, "h2"}, {1, 3, "h2"}, {2, 1, "h2"}});
}

}  // namespace
}  // namespace hvd::launcher
