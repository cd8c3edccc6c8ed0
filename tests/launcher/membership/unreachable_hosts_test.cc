// Hosts that cannot reach each other: which of them is left out, when, and for how long.
#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "launcher/membership/membership.h"
#include "tests/support/catch.h"

using namespace hvd;
using namespace hvd::launcher;

namespace {

using Reports = std::vector<std::pair<int, int>>;  // a process, and the rank that it could not reach

// A job that trains on a, b and c, with two processes on each: 0 to 5.
class ThreeHosts {
 public:
  explicit ThreeHosts(int min_np)
      : membership({.num_proc = 6, .min_np = min_np, .max_np = 6, .cooldown_min = 10s}, TimePoint()) {
    membership.hosts_changed({{"a", 2}, {"b", 2}, {"c", 2}}, now);
    arrive({0, 1, 2, 3, 4, 5});
    REQUIRE(membership.processes().epoch() == 1);
    membership.take_actions();
  }

  void arrive(const std::vector<int>& processes) {
    for (const int process : processes) membership.process_arrived(process, now);
  }
  void fail_epoch(const Reports& reports) {
    for (const auto& [process, rank] : reports) membership.process_cannot_reach(process, rank);
    arrive({0, 1, 2, 3, 4, 5});
  }
  // The first action of its kind since the last call; nullopt: there is none.
  template <typename Action>
  std::optional<Action> take() {
    for (const MembershipAction& action : membership.take_actions()) {
      if (const auto* found = std::get_if<Action>(&action)) return *found;
    }
    return std::nullopt;
  }

  TimePoint now{};
  Membership membership;
};

}  // namespace

TEST_CASE("membership: of two hosts that cannot reach each other, the one that most report is left out") {
  struct Case {
    Reports reports;
    std::string host, other;
  };
  const auto [reports, host, other] = GENERATE(values<Case>({
      {{{4, 2}, {2, 4}}, "c", "b"},                  // alike: the last
      {{{4, 2}, {2, 4}, {5, 3}, {0, 2}}, "b", "c"},  // b, and c is the one that it has most reports in common with
      {{{0, 3}, {1, 2}}, "b", "a"},
      {{{4, 0}}, "a", "c"},
  }));
  ThreeHosts job(2);
  job.fail_epoch(reports);
  CHECK(job.membership.processes().epoch() == 2);
  CHECK(!job.take<LeaveOutHost>());
  job.fail_epoch({});
  CHECK(job.membership.processes().epoch() == 3);
  CHECK(job.take<LeaveOutHost>() == LeaveOutHost{.host = host, .other = other});
  const int first = (host[0] - 'a') * 2;
  CHECK(!job.membership.processes().rank_of(first));
  CHECK(!job.membership.processes().rank_of(first + 1));
  job.membership.process_ended(first, ProcessEnd::finished, "", job.now);
  job.membership.time_passed(job.now += 9s);
  CHECK(!job.take<StartProcess>());
  job.membership.time_passed(job.now += 1s);
  CHECK(job.take<StartProcess>() == StartProcess{.process = 6, .host = host, .slot = 0});
}

TEST_CASE("membership: no host is left out while epochs get further, or fail for another reason") {
  ThreeHosts job(2);
  const Reports reports = {{4, 2}, {2, 4}};
  SECTION("a process was synchronised in between") {
    job.fail_epoch(reports);
    job.membership.process_synchronized(0, job.now);
    job.fail_epoch(reports);
  }
  SECTION("nobody reports anything") {
    job.fail_epoch({});
    job.fail_epoch({});
  }
  SECTION("of another process on the same host, of itself, of no rank") {
    job.fail_epoch({{4, 5}, {4, 4}, {4, -1}, {4, 6}, {17, 0}});
    job.fail_epoch({});
  }
  SECTION("a process has failed") {
    job.fail_epoch(reports);
    job.membership.process_cannot_reach(0, 5);
    job.membership.process_ended(5, ProcessEnd::failed, "killed", job.now);
    job.arrive({0, 1, 2, 3, 4});
  }
  CHECK(job.membership.processes().epoch() == 3);
  CHECK(!job.take<LeaveOutHost>());
}

TEST_CASE("membership: failed epochs are counted from the begin of one that did not wait for all, too") {
  ThreeHosts job(2);
  job.membership.process_ended(5, ProcessEnd::failed, "killed", job.now);
  job.arrive({0, 1, 2, 3});
  job.membership.time_passed(job.now += 600s);  // process 4 has not arrived
  REQUIRE(job.membership.processes().epoch() == 2);
  job.membership.process_cannot_reach(0, 2);
  job.arrive({0, 1, 2, 3});
  CHECK(!job.take<LeaveOutHost>());
  job.arrive({0, 1, 2, 3});
  CHECK(job.take<LeaveOutHost>() == LeaveOutHost{.host = "b", .other = "a"});
}

TEST_CASE("membership: a host that is needed is not left out, but the other one; if both are, the job ends") {
  Membership membership({.num_proc = 4, .min_np = 3, .max_np = 4}, TimePoint());
  const bool are_both_needed = GENERATE(false, true);
  membership.hosts_changed(
      are_both_needed ? std::vector<HostCount>{{"a", 2}, {"b", 2}} : std::vector<HostCount>{{"a", 1}, {"b", 3}},
      TimePoint());
  for (const int epoch : {1, 2, 3}) {
    if (epoch > 1) membership.process_cannot_reach(0, 3);
    for (const int process : {0, 1, 2, 3}) membership.process_arrived(process, TimePoint());
  }
  const auto actions = membership.take_actions();
  if (are_both_needed) {
    CHECK(membership.over());
    CHECK(std::get<EndJob>(actions.back()).failure ==
          "hosts b and a cannot reach each other, and without one of them fewer than 3 processes are left (--min-np)");
  } else {
    CHECK(membership.processes().rank_of(1) == 0);
    CHECK(std::ranges::count(actions, MembershipAction(LeaveOutHost{.host = "a", .other = "b"})) == 1);
  }
}
