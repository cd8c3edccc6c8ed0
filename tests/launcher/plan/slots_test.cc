#include "launcher/plan/slots.h"

#include "core/base/error.h"
#include "tests/support/catch.h"

namespace hvd::launcher {
namespace {

const std::vector<std::string> kNames{"a", "b", "c"};

HostPool pool(const std::vector<HostCapacity>& hosts) { return {.hosts = hosts}; }

Binding by(const std::string& map_by, const std::string& rank_by = "") {
  Binding binding;
  parse_map_by(map_by, binding);
  if (!rank_by.empty()) parse_rank_by(rank_by, binding);
  return binding;
}

// "a0 a1 b0": the hosts and local ranks of a job's ranks; "a0 / b0" where another program begins.
std::string places(const std::vector<PlacedRank>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    if (i > 0) text += ranks[i].program != ranks[i - 1].program ? " / " : " ";
    text += kNames[static_cast<std::size_t>(ranks[i].host)] + std::to_string(ranks[i].numbers.local_rank);
  }
  return text;
}

TEST_CASE("ranks are placed as Open MPI places them") {
  struct Row {
    std::optional<int> num_proc;
    std::vector<HostCapacity> hosts;
    const char *map_by, *rank_by, *places;
    bool oversubscribe = false;
  };
  const std::vector<HostCapacity> two{{0, 2}, {1, 2}}, uneven{{0, 2}, {1, 3}, {2, 1}};
  const std::vector<HostCapacity> sockets{{.host = 0, .slots = 8, .units = 2}, {.host = 1, .slots = 8, .units = 1}};
  const Row rows[] = {
      {4, two, "slot", "", "a0 a1 b0 b1"},
      {3, two, "slot", "", "a0 a1 b0"},
      {2, two, "slot", "", "a0 a1"},
      {{}, two, "slot", "", "a0 a1 b0 b1"},
      {{}, uneven, "slot", "", "a0 a1 b0 b1 b2 c0"},
      {5, uneven, "core", "", "a0 a1 b0 b1 b2"},
      {5, uneven, "node", "", "a0 b0 c0 a1 b1"},
      {{}, uneven, "node", "", "a0 b0 c0 a1 b1 b2"},
      {5, uneven, "node", "slot", "a0 a1 b0 b1 c0"},
      {3, two, "slot", "node", "a0 b0 a1"},
      {3, two, "slot", "socket", "a0 a1 b0"},
      {3, two, "socket", "", "a0 a1 b0"},
      {{}, uneven, "ppr:1:node", "", "a0 b0 c0"},
      {2, uneven, "ppr:1:node", "", "a0 b0"},
      {{}, two, "ppr:2:node", "", "a0 a1 b0 b1"},
      {{}, two, "ppr:2:node", "node", "a0 b0 a1 b1"},
      {{}, sockets, "ppr:2:socket", "", "a0 a1 a2 a3 b0 b1"},
      {7, two, "slot", "", "a0 a1 a2 a3 b0 b1 b2", true},
      {9, {{0, 2}, {1, 4}}, "slot", "", "a0 a1 a2 a3 b0 b1 b2 b3 b4", true},
      {5, {{0, 1}, {1, 3}}, "node", "", "a0 b0 a1 b1 a2", true},
      {4, {{0, 1}, {1, 3}}, "node", "", "a0 b0 b1 b2", true},
      {6, {{0, 1, 2}, {1, 1}}, "slot", "", "a0 a1 b0 b1 b2 b3", true},
      {4, {{0, 1}, {1, 1}}, "ppr:2:node", "", "a0 a1 b0 b1", true},
      {5, {{0, 8}}, "ppr:2:node", "", "a0 a1 a2 a3 a4", true},
  };
  for (const Row& row : rows) {
    CAPTURE(row.num_proc.value_or(0), row.map_by, row.rank_by, row.places);
    CHECK(places(place_ranks({{row.num_proc}}, {pool(row.hosts)}, kNames, by(row.map_by, row.rank_by),
                             row.oversubscribe)) == row.places);
  }
}

TEST_CASE("programs share slots, or have hosts of their own") {
  const HostPool two = pool({{0, 2}, {1, 2}});
  CHECK(places(place_ranks({{3}, {1}}, {two}, kNames, {}, false)) == "a0 a1 b0 / b1");
  CHECK(places(place_ranks({{1}, {}}, {two}, kNames, {}, false)) == "a0 / a1 b0 b1");
  CHECK(places(place_ranks({{2, 0}, {1, 1}}, {two, pool({{1, 1}})}, kNames, {}, false)) == "a0 a1 / b0");
  CHECK(places(place_ranks({{{}, 0}, {{}, 1}}, {two, pool({{2, 1}, {0, 1}})}, kNames, {}, false)) ==
        "a0 a1 b0 b1 / c0 a2");
  CHECK(places(place_ranks({{2}, {3}}, {{.hosts = {{0, 0}}, .limited = false}}, kNames, {}, false)) ==
        "a0 a1 / a2 a3 a4");
}

TEST_CASE("a rank knows its place among its host's, and its host's among others") {
  // a: 0 1, b: 2 3 4, c: 5
  const auto ranks = place_ranks({{}}, {pool({{0, 2}, {1, 3}, {2, 1}})}, kNames, {}, false);
  struct Row {
    int local_rank, local_size, cross_rank, cross_size;
  };
  const Row rows[] = {{0, 2, 0, 3}, {1, 2, 0, 2}, {0, 3, 1, 3}, {1, 3, 1, 2}, {2, 3, 0, 1}, {0, 1, 2, 3}};
  REQUIRE(ranks.size() == std::size(rows));
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    CAPTURE(i);
    const RankNumbers& numbers = ranks[i].numbers;
    CHECK(numbers.rank == static_cast<int>(i));
    CHECK(numbers.size == 6);
    CHECK(numbers.local_rank == rows[i].local_rank);
    CHECK(numbers.local_size == rows[i].local_size);
    CHECK(numbers.cross_rank == rows[i].cross_rank);
    CHECK(numbers.cross_size == rows[i].cross_size);
  }
}

TEST_CASE("hosts without a rank are not in the job") {
  const auto ranks = place_ranks({{2}}, {pool({{1, 1}, {0, 1}, {2, 4}})}, kNames, {}, false);
  CHECK(places(ranks) == "b0 a0");
  CHECK(ranks[0].numbers.cross_size == 2);
}

TEST_CASE("what the hosts have no place for is refused, with what to do") {
  struct Row {
    std::optional<int> num_proc;
    std::vector<HostCapacity> hosts;
    const char *map_by, *in_message;
    bool oversubscribe = false, limited = true;
  };
  const Row rows[] = {
      {8, {{0, 4}}, "slot", "-np 8 but only 4 slots; raise it with -H a:8, or with --oversubscribe"},
      {2, {{0, 1}}, "slot", "-np 2 but only 1 slot;"},
      {5, {{0, 2}, {1, 2}}, "slot", "-np 5 but only 4 slots; raise it with -H HOST:N,..., slots=N in a hostfile"},
      {4, {{0, 2}, {1, 2}}, "ppr:1:node", "-N or -map-by ppr has places for 2 ranks, not for 4"},
      {{}, {{0, 1}, {1, 3}}, "ppr:2:node", "-N or -map-by ppr has places for 3 ranks, not for 4"},
      {{}, {{0, 1}, {1, 1}}, "ppr:2:node", "-map-by ppr asks for 4 but only 2 slots"},
      {5, {{0, 1, 2}, {1, 1, 2}}, "slot", "5 ranks are more than the hostfile's max_slots allow", true},
      {{}, {{0, 1, 1}}, "ppr:2:node", "max_slots", true},
      {{}, {{0, 0}}, "slot", "-np N", false, false},
      {2'000'000'000, {{0, 0}}, "slot", "2000000000 processes are more than 1000000", false, false},
      {{}, {{0, 1'000'000}, {1, 1}}, "slot", "more than 1000000"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.in_message);
    CHECK_THROWS_WITH(place_ranks({{row.num_proc}}, {{.hosts = row.hosts, .limited = row.limited}}, kNames,
                                  by(row.map_by), row.oversubscribe),
                      Catch::Matchers::Contains(row.in_message));
  }
  const HostPool two = pool({{0, 1}, {1, 1}});
  CHECK_THROWS_WITH(place_ranks({{2}, {}}, {two}, kNames, {}, false), Catch::Matchers::Contains("taken all slots"));
  CHECK_THROWS_WITH(place_ranks({{2}, {1}}, {two}, kNames, {}, false),
                    Catch::Matchers::Contains("-np 1 but only 0 slots"));
}

TEST_CASE("slots that nobody has given follow from the host") {
  const HostResources host{.cpus = {{0, 0, 0, 0}, {2, 0, 0, 0}, {1, 1, 0, 0}, {3, 1, 0, 0}}, .gpus = 4};
  CHECK(slots_of({"a", 7}, parse_slots_rule("gpu"), host) == 7);
  CHECK(slots_of({"a"}, {}, host) == 2);
  CHECK(slots_of({"a"}, {}, {}) == 1);
  CHECK(slots_of({"a"}, parse_slots_rule("core"), host) == 2);
  CHECK(slots_of({"a"}, parse_slots_rule("gpu"), host) == 4);
  CHECK(slots_of({"a"}, parse_slots_rule("5"), host) == 5);
  CHECK_THROWS_WITH(slots_of({"a"}, parse_slots_rule("gpu"), {}), Catch::Matchers::Contains("a has no GPU"));
  for (const char* text : {"", "0", "-1", "gpus", "4x", "1000001"}) {
    CHECK_THROWS_WITH(parse_slots_rule(text), Catch::Matchers::Contains("--slots-per-host"));
  }
}

}  // namespace
}  // namespace hvd::launcher
