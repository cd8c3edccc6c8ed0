#include "core/base/wait_policy.h"

#include "tests/support/catch.h"

using namespace hvd;

TEST_CASE("ranks spin only while each can have a core") {
  struct Case {
    int ranks, cpus;
    bool spins;
  };
  for (const Case& c : {Case{1, 1, true}, Case{2, 2, true}, Case{3, 2, false}, Case{4, 64, true}, Case{16, 2, false}}) {
    CAPTURE(c.ranks, c.cpus);
    const WaitPolicy policy = wait_policy_for(c.ranks, c.cpus);
    CHECK((policy.spin > Duration::zero()) == c.spins);
    CHECK((policy.yields > 0) == !c.spins);
    CHECK(policy.spin <= std::chrono::microseconds(20));
    CHECK(policy.yields <= 64);
    const WaitPolicy network = network_wait_policy_for(c.ranks, c.cpus);
    CHECK((network.spin > policy.spin) == c.spins);
    CHECK(network.yields == policy.yields);
  }
}

TEST_CASE("spinning in vain ends, but for a try now and then; one success brings it back") {
  SpinCredit credit;
  for (int vain = 0; vain < 3; ++vain) {
    CHECK(credit.worth_spinning());
    credit.spun(false);
  }
  int tries = 0;
  for (int wait = 0; wait < 160; ++wait) {
    if (!credit.worth_spinning()) continue;
    ++tries;
    credit.spun(false);
  }
  CHECK(tries == 10);
  while (!credit.worth_spinning()) continue;
  credit.spun(true);
  for (int wait = 0; wait < 3; ++wait) {
    CHECK(credit.worth_spinning());
    credit.spun(false);
  }
  CHECK_FALSE(credit.worth_spinning());
}
