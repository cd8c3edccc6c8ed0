// A job that is about to be taken away: what it does until all have left, and what it takes for its end.
#include <string>
#include <variant>
#include <vector>

#include "launcher/membership/membership.h"
#include "tests/support/catch.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {

// What the actions are, by a letter and a number: S start, B begin (size), R removes, E ends, X break, D dismiss;
// "early", "finished" or the failure.
std::string told(Membership& membership) {
  std::string text;
  const auto add = [&](const std::string& word) { text += (text.empty() ? "" : " ") + word; };
  for (const MembershipAction& action : membership.take_actions()) {
    if (const auto* start = std::get_if<StartProcess>(&action)) add("S" + std::to_string(start->process));
    if (const auto* begin = std::get_if<BeginEpoch>(&action)) add("B" + std::to_string(begin->processes.size()));
    if (const auto* change = std::get_if<AnnounceChange>(&action)) add(change->ends ? "E" : change->adds ? "A" : "R");
    if (std::holds_alternative<BreakEpoch>(action)) add("X");
    if (const auto* dismissed = std::get_if<DismissProcess>(&action)) add("D" + std::to_string(dismissed->process));
    if (const auto* end = std::get_if<EndJob>(&action)) add(end->early ? "early" : "failed: " + end->failure);
  }
  return text;
}

constexpr TimePoint kToday{};

// Two hosts with a process each, in their first epoch.
Membership two_ranks(bool fixed_hosts = true) {
  Membership membership({.num_proc = 2, .min_np = 2, .max_np = 2, .fixed_hosts = fixed_hosts, .cooldown_min = 0s},
                        kToday);
  membership.hosts_changed({{"a", 1}, {"b", 1}}, kToday);
  for (const int process : {0, 1}) membership.process_arrived(process, kToday);
  told(membership);
  return membership;
}

void leave(Membership& membership, int process) {
  membership.process_preempted(process, kToday);
  membership.process_arrived(process, kToday);
}

void end_process(Membership& membership, int process, ProcessEnd how = ProcessEnd::finished) {
  membership.process_ended(process, how, "it has failed", kToday);
}

}  // namespace

TEST_CASE("membership: a job ends early once all have saved the state, and have ended") {
  Membership membership = two_ranks();
  membership.end_early(kToday);
  CHECK(told(membership) == "E");
  membership.end_early(kToday);
  CHECK(told(membership).empty());
  leave(membership, 1);
  CHECK(told(membership) == "X D1");
  end_process(membership, 1);
  CHECK(told(membership).empty());  // rank 0 is writing
  leave(membership, 0);
  CHECK(told(membership) == "D0");
  end_process(membership, 0);
  CHECK(told(membership) == "early");
}

TEST_CASE("membership: what an early end does to a job in each phase") {
  SECTION("nothing has begun: there is nothing to save") {
    Membership membership({.num_proc = 2, .min_np = 2, .max_np = 2}, kToday);
    membership.hosts_changed({{"a", 2}}, kToday);
    membership.process_arrived(0, kToday);
    told(membership);
    membership.end_early(kToday);
    CHECK(told(membership) == "D0 early");
  }
  SECTION("a rank was lost: the others save, although they are fewer than min_np") {
    Membership membership = two_ranks();
    end_process(membership, 1, ProcessEnd::failed);
    membership.process_arrived(0, kToday);
    CHECK(told(membership) == "X S2");
    membership.end_early(kToday);
    CHECK(told(membership) == "B1 E");
  }
  SECTION("a rank is lost before the others have saved: they form an epoch once more") {
    Membership membership = two_ranks();
    membership.end_early(kToday);
    end_process(membership, 1, ProcessEnd::failed);
    membership.process_arrived(0, kToday);
    CHECK(told(membership) == "E X B1 E");
    leave(membership, 0);
    end_process(membership, 0);
    CHECK(told(membership) == "X D0 early");
  }
  SECTION("another change was announced: they come back, and leave then") {
    Membership membership = two_ranks();
    membership.host_preempted("b", kToday);
    CHECK(told(membership) == "R");
    membership.end_early(kToday);
    CHECK(told(membership).empty());
    membership.process_arrived(0, kToday);
    membership.process_arrived(1, kToday);
    CHECK(told(membership) == "X B2 E");
  }
  SECTION("the ranks finish by themselves meanwhile") {
    Membership membership = two_ranks();
    membership.end_early(kToday);
    end_process(membership, 0);
    end_process(membership, 1);
    CHECK(told(membership) == "E failed: ");  // of no failure
  }
  SECTION("all that had the state are lost") {
    Membership membership = two_ranks();
    membership.end_early(kToday);
    end_process(membership, 0, ProcessEnd::failed);
    end_process(membership, 1, ProcessEnd::failed);
    CHECK(told(membership) ==
          "E X failed: every process that had the job's state is gone; the last failure: it has failed");
  }
}

TEST_CASE("membership: when all hosts are preempted, the job ends unless others may come") {
  const bool fixed_hosts = GENERATE(true, false);
  Membership membership = two_ranks(fixed_hosts);
  membership.host_preempted("a", kToday);
  membership.process_arrived(0, kToday);
  membership.process_arrived(1, kToday);
  CHECK(told(membership) == "R X D0");  // process 1 waits for another one
  membership.host_preempted("b", kToday);
  CHECK(told(membership) == (fixed_hosts ? "B1 E" : ""));
}
