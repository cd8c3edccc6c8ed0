// Failures before the first epoch: which of them end the job.
#include <string>
#include <variant>

#include "launcher/membership/membership.h"
#include "tests/support/catch.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {

constexpr TimePoint kBeginning{};

// Processes 0 and 1 have been started; another one follows a second after each failure.
Membership two_starting() {
  Membership membership({.num_proc = 2, .min_np = 1, .max_np = 2}, kBeginning);
  membership.hosts_changed({{"a", 2}}, kBeginning);
  return membership;
}

// Process 0 has failed, and process 2 taken its place.
Membership one_restarted() {
  Membership membership = two_starting();
  membership.process_ended(0, ProcessEnd::failed, "no module", kBeginning);
  membership.time_passed(kBeginning + 1s);
  REQUIRE(membership.processes().alive(2));
  return membership;
}

std::string failure_in(Membership& membership) {
  for (const MembershipAction& action : membership.take_actions()) {
    if (const auto* end = std::get_if<EndJob>(&action)) return end->failure;
  }
  return "";
}

}  // namespace

TEST_CASE("membership: the job ends once all of the first processes have failed, whatever was started after them") {
  Membership membership = one_restarted();
  const bool restarted_fails_first = GENERATE(true, false);
  if (restarted_fails_first) membership.process_ended(2, ProcessEnd::failed, "no module", kBeginning + 2s);
  CHECK_FALSE(membership.over());
  membership.process_ended(1, ProcessEnd::failed, "no package", kBeginning + 3s);
  CHECK(failure_in(membership) == "every process has failed before the job began; the last failure: no package");
}

TEST_CASE("membership: the job goes on if a restarted process has come to init") {
  Membership membership = one_restarted();
  membership.process_arrived(2, kBeginning + 2s);
  membership.process_ended(1, ProcessEnd::failed, "no module", kBeginning + 2s);
  CHECK(membership.running());  // with one rank, as min_np allows
}

TEST_CASE("membership: the job waits for a restarted process if others have finished") {
  Membership membership = one_restarted();
  membership.process_ended(1, ProcessEnd::finished, "", kBeginning + 2s);
  CHECK_FALSE(membership.over());
  membership.process_ended(2, ProcessEnd::finished, "", kBeginning + 2s);
  CHECK(membership.over());
  CHECK(failure_in(membership).empty());
}

TEST_CASE("membership: a failure for good ends the job at once, but only before its first epoch") {
  Membership membership = two_starting();
  const bool has_begun = GENERATE(true, false);
  if (has_begun) {
    for (const int process : {0, 1}) membership.process_arrived(process, kBeginning);
    membership.process_ended(0, ProcessEnd::failed, "killed", kBeginning);
    membership.time_passed(kBeginning + 1s);
    REQUIRE(membership.processes().alive(2));
    membership.process_ended(2, ProcessEnd::failed_for_good, "no module", kBeginning + 2s);
    CHECK_FALSE(membership.over());
  } else {
    membership.process_ended(1, ProcessEnd::failed_for_good, "no module", kBeginning);
    CHECK(failure_in(membership) ==
          "a process exited with code 78 (EX_CONFIG), so it is not restarted; the last failure: no module");
  }
}
