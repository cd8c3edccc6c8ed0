#include "core/bootstrap/topology.h"

#include "core/base/error.h"
#include "tests/core/bootstrap/ranks_on.h"
#include "tests/support/catch.h"

using namespace hvd;

namespace {

struct Place {
  int local_rank, local_size, cross_rank, cross_size, host;
  bool operator==(const Place&) const = default;
};

struct Case {
  std::string hosts;
  bool homogeneous;
  std::vector<Place> places;  // by rank
};

std::ostream& operator<<(std::ostream& out, const Place& p) {
  return out << "local " << p.local_rank << "/" << p.local_size << " cross " << p.cross_rank << "/" << p.cross_size
             << " host " << p.host;
}

}  // namespace

TEST_CASE("the CPUs of a host are those of its ranks, each counted once") {
  std::vector<RankIdentity> identities = ranks_on("aaab");
  CHECK(make_topology(0, identities).local_cpus == 0);  // nobody says
  identities[0].cpus = {0b0011};
  identities[1].cpus = {0b0110, 1};
  identities[2].cpus = {0, 0b11};
  identities[3].cpus = {0xff};
  CHECK(make_topology(0, identities).local_cpus == 5);
  CHECK(make_topology(2, identities).local_cpus == 5);
  CHECK(make_topology(3, identities).local_cpus == 8);
  CHECK(make_subset(make_topology(1, identities), {1, 2}).local_cpus == 4);
}

TEST_CASE("the ranks of a machine's hosts compete for its CPUs") {
  std::vector<RankIdentity> identities = ranks_on("aabc");
  for (RankIdentity& identity : identities) {
    identity.machine = identity.hostname == "host-c" ? "other" : "one";
    identity.cpus = {0b0011};
  }
  identities[2].cpus = {0b0110};
  const Topology first = make_topology(0, identities), third = make_topology(2, identities);
  CHECK((first.machine.ranks == 3 && first.machine.cpus == 3 && first.local_cpus == 2));
  CHECK((third.machine.ranks == 3 && third.machine.cpus == 3 && third.local_size == 1));
  CHECK((make_topology(3, identities).machine.ranks == 1 && make_topology(3, identities).machine.cpus == 2));
  CHECK(make_subset(third, {2, 3}).machine.ranks == 1);
}

TEST_CASE("positions follow from who shares a host") {
  const std::vector<Case> cases{
      {"a", true, {{0, 1, 0, 1, 0}}},
      {"aaa", true, {{0, 3, 0, 1, 0}, {1, 3, 0, 1, 0}, {2, 3, 0, 1, 0}}},
      {"ab", true, {{0, 1, 0, 2, 0}, {0, 1, 1, 2, 1}}},
      {"aabb", true, {{0, 2, 0, 2, 0}, {1, 2, 0, 2, 0}, {0, 2, 1, 2, 1}, {1, 2, 1, 2, 1}}},
      {"abab", true, {{0, 2, 0, 2, 0}, {0, 2, 1, 2, 1}, {1, 2, 0, 2, 0}, {1, 2, 1, 2, 1}}},
      // Hosts are numbered by their lowest rank, whatever their keys are.
      {"zaz", false, {{0, 2, 0, 2, 0}, {0, 1, 1, 2, 1}, {1, 2, 0, 1, 0}}},
      {"aabbbc",
       false,
       {{0, 2, 0, 3, 0}, {1, 2, 0, 2, 0}, {0, 3, 1, 3, 1}, {1, 3, 1, 2, 1}, {2, 3, 0, 1, 1}, {0, 1, 2, 3, 2}}},
      // The host in the middle has no second rank and does not count there.
      {"aabcc", false, {{0, 2, 0, 3, 0}, {1, 2, 0, 2, 0}, {0, 1, 1, 3, 1}, {0, 2, 2, 3, 2}, {1, 2, 1, 2, 2}}},
  };
  for (const Case& expected : cases) {
    for (int rank = 0; rank < static_cast<int>(expected.hosts.size()); ++rank) {
      CAPTURE(expected.hosts, rank);
      const Topology t = make_topology(rank, ranks_on(expected.hosts));
      CHECK(t.rank == rank);
      CHECK(t.size == static_cast<int>(expected.hosts.size()));
      CHECK(t.homogeneous == expected.homogeneous);
      CHECK(Place{t.local_rank, t.local_size, t.cross_rank, t.cross_size, t.host()} ==
            expected.places[static_cast<std::size_t>(rank)]);
    }
  }
}

TEST_CASE("hosts list their ranks, and ranks their host") {
  const Topology t = make_topology(2, ranks_on("abacb"));
  CHECK(t.hosts == std::vector<std::vector<int>>{{0, 2}, {1, 4}, {3}});
  CHECK(t.host_of == std::vector<int>{0, 1, 0, 2, 1});
}

TEST_CASE("every rank of every host sees the same table") {
  const auto identities = ranks_on("abcabcaab");
  const Topology first = make_topology(0, identities);
  for (int rank = 1; rank < first.size; ++rank) {
    const Topology other = make_topology(rank, identities);
    CHECK(other.hosts == first.hosts);
    CHECK(other.host_of == first.host_of);
  }
}

TEST_CASE("a rank keeps the local rank of the job in a subset") {
  const Topology subset = make_subset(make_topology(4, ranks_on("aabbb")), {1, 4});
  CHECK(subset.local_rank == 0);
  CHECK(subset.job_local_rank == 2);
  CHECK(make_topology(4, ranks_on("aabbb")).job_local_rank == 2);
}

TEST_CASE("ranks are described for people") {
  const Topology t = make_topology(0, ranks_on("ab"));
  CHECK(t.describe(1) == "rank 1 on host-b (pid 101)");
  CHECK(t.describe(7) == "rank 7");
  CHECK(t.describe(-1) == "rank -1");
}

TEST_CASE("a rank outside the job is refused") {
  CHECK_THROWS_AS(make_topology(2, ranks_on("ab")), InvalidArgument);
  CHECK_THROWS_AS(make_topology(-1, ranks_on("ab")), InvalidArgument);
  CHECK_THROWS_AS(make_topology(0, {}), InvalidArgument);
}
