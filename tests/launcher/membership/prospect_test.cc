// The place that a newcomer can expect.
#include "launcher/membership/membership.h"
#include "tests/support/catch.h"

using namespace hvd;
using namespace hvd::launcher;

TEST_CASE("membership: a newcomer expects the last rank, and the slot that is free on its host") {
  Membership membership({.num_proc = 4, .min_np = 1, .max_np = 8, .cooldown_min = 0s}, TimePoint());
  const auto now = TimePoint();
  membership.hosts_changed({{"a", 3}, {"b", 1}}, now);
  CHECK(membership.prospect_of(0) == Prospect());  // the job has not begun
  for (const int process : {0, 1, 2, 3}) membership.process_arrived(process, now);
  REQUIRE(membership.running());
  membership.process_ended(1, ProcessEnd::failed, "", now);  // process 4 is started in its slot
  CHECK(membership.prospect_of(4) ==
        Prospect{.size = 4, .local_rank = 1, .local_size = 3, .cross_rank = 0, .cross_size = 2});
  membership.hosts_changed({{"a", 3}, {"b", 2}, {"c", 1}}, now);
  CHECK(membership.prospect_of(5) ==
        Prospect{.size = 4, .local_rank = 1, .local_size = 2, .cross_rank = 1, .cross_size = 2});
  CHECK(membership.prospect_of(6) ==
        Prospect{.size = 4, .local_rank = 0, .local_size = 1, .cross_rank = 2, .cross_size = 3});
  CHECK(membership.prospect_of(17) == Prospect());  // no process
}
