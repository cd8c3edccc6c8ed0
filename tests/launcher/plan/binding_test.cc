#include "launcher/plan/binding.h"

#include "core/base/error.h"
#include "tests/support/catch.h"

namespace hvd::launcher {
namespace {

// Two sockets of two cores of two threads: CPUs 0 to 3 are the first threads, 4 to 7 the second.
const std::vector<Cpu> kEight{{0, 0, 0, 0}, {4, 0, 0, 0}, {1, 1, 0, 0}, {5, 1, 0, 0},
                              {2, 2, 1, 1}, {6, 2, 1, 1}, {3, 3, 1, 1}, {7, 3, 1, 1}};

std::string bound(int ranks, const std::string& bind_to, const std::string& map_by, const std::string& rank_by) {
  Binding binding;
  if (!bind_to.empty()) parse_bind_to(bind_to, binding);
  parse_map_by(map_by, binding);
  parse_rank_by(rank_by, binding);
  std::string text;
  for (const auto& cpus : bind_ranks(ranks, binding, kEight)) text += (text.empty() ? "" : " ") + format_cpu_list(cpus);
  return text;
}

TEST_CASE("ranks are bound as they are mapped") {
  struct Row {
    int ranks;
    const char *bind_to, *map_by, *bound;
    const char* rank_by = "slot";
  };
  const Row rows[] = {
      {4, "none", "slot", ""},
      {4, "none", "socket", ""},
      {4, "core", "slot", "0,4 1,5 2,6 3,7"},
      {4, "core", "core", "0,4 1,5 2,6 3,7"},
      {4, "core", "node", "0,4 1,5 2,6 3,7"},
      {4, "core", "socket", "0,4 2,6 1,5 3,7"},
      {4, "core", "numa", "0,4 2,6 1,5 3,7"},
      {3, "hwthread", "slot", "0 4 1"},
      {3, "hwthread", "hwthread", "0 4 1"},
      {3, "core", "hwthread", "0,4 0,4 1,5"},
      {3, "hwthread", "core", "0 1 2"},
      {3, "hwthread", "socket", "0 2 1"},
      {2, "hwthread", "slot:PE=2", "0 1"},
      {2, "hwthread", "core:PE=2", "0-1 2-3"},
      {2, "", "slot", ""},
      {2, "", "socket", ""},
      {2, "", "slot:PE=2", "0-1,4-5 2-3,6-7"},
      {2, "", "slot:PE=1", "0,4 1,5"},
      {2, "", ":PE=1", "0,4 1,5"},
      {2, "none", "slot:PE=1", ""},
      {2, "", "ppr:1:socket", "0,4 2,6"},
      {2, "none", "ppr:1:socket", ""},
      {3, "socket", "slot", "0-1,4-5 0-1,4-5 2-3,6-7"},
      {3, "socket", "socket", "0-1,4-5 2-3,6-7 0-1,4-5"},
      {5, "package", "package", "0-1,4-5 2-3,6-7 0-1,4-5 2-3,6-7 0-1,4-5"},
      {2, "numa", "numa", "0-1,4-5 2-3,6-7"},
      {2, "core", "slot:PE=2", "0-1,4-5 2-3,6-7"},
      {2, "core", "socket:pe=2", "0-1,4-5 2-3,6-7"},
      {4, "core", "ppr:2:socket", "0,4 1,5 2,6 3,7"},
      {2, "core", "ppr:1:socket", "0,4 2,6"},
      {4, "core", "ppr:2:core", "0,4 0,4 1,5 1,5"},
      {4, "core", "ppr:4:node", "0,4 1,5 2,6 3,7"},
      {6, "core:overload-allowed", "slot", "0,4 1,5 2,6 3,7 0,4 1,5"},
      {6, "core", "slot:OVERSUBSCRIBE", "0,4 1,5 2,6 3,7 0,4 1,5"},
      {6, "core", ":OVERSUBSCRIBE", "0,4 1,5 2,6 3,7 0,4 1,5"},
      {6, "CORE:Overload-Allowed", "SLOT", "0,4 1,5 2,6 3,7 0,4 1,5"},
      {2, ":overload-allowed", ":PE=2", "0-1,4-5 2-3,6-7"},
      {2, "Core", "PPR:1:Package", "0,4 2,6"},
      {4, "core", "socket", "0,4 1,5 2,6 3,7", "core"},
      {4, "core", "slot", "0,4 2,6 1,5 3,7", "PACKAGE"},
      {4, "core", "slot", "0,4 2,6 1,5 3,7", "socket"},
      {3, "core", "slot", "0,4 2,6 1,5", "numa"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.ranks, row.bind_to, row.map_by, row.rank_by);
    CHECK(bound(row.ranks, row.bind_to, row.map_by, row.rank_by) == row.bound);
  }
}

TEST_CASE("units of CPUs are counted") {
  struct Row {
    CpuUnit unit;
    int count;
  };
  for (const Row& row : {Row{CpuUnit::hwthread, 8}, Row{CpuUnit::core, 4}, Row{CpuUnit::numa, 2},
                         Row{CpuUnit::socket, 2}, Row{CpuUnit::node, 1}, Row{CpuUnit::slot, 1}}) {
    CHECK(count_units(kEight, row.unit) == row.count);
  }
  CHECK(count_units({}, CpuUnit::core) == 0);
}

TEST_CASE("what cannot be bound, or not understood, is refused") {
  struct Row {
    int ranks;
    const char *bind_to, *map_by, *rank_by, *in_message;
  };
  const Row rows[] = {
      {5, "core", "slot", "slot", "too few cores here to bind 5 ranks: add -oversubscribe, or say -bind-to none"},
      {9, "hwthread", "slot", "slot", "too few hardware threads"},
      {3, "core", "slot:PE=2", "slot", "too few cores"},
      {1, "socket", "slot:PE=2000000000", "slot", "too few cores"},
      {3, "", "ppr:1:socket", "slot", "has places for 2 ranks here, not for 3"},
      {3, "core", "ppr:1:socket", "slot", "has places for 2 ranks here, not for 3"},
      {1, "board", "slot", "slot", "-bind-to \"board\": it may be none, core"},
      {1, "core:maybe", "slot", "slot", "is not overload-allowed"},
      {1, "core", "l3", "slot", "-map-by \"l3\": it may be slot"},
      {1, "core", "slot:PE=0", "slot", "is not PE=N"},
      {1, "core", "ppr:0:socket", "slot", "ppr:2:socket"},
      {1, "core", "ppr:2", "slot", "-map-by"},
      {1, "core", "ppr:2::OVERSUBSCRIBE", "slot", "-map-by \"\""},
      {1, "core", ":", "slot", "-map-by \"\""},
      {1, "core", "slot", "fill", "-rank-by \"fill\""},
  };
  for (const Row& row : rows) {
    CHECK_THROWS_WITH(bound(row.ranks, row.bind_to, row.map_by, row.rank_by),
                      Catch::Matchers::Contains(row.in_message));
  }
  Binding binding;
  parse_bind_to("core", binding);
  CHECK_THROWS_AS(bind_ranks(1, binding, {}), InvalidArgument);
}

}  // namespace
}  // namespace hvd::launcher
