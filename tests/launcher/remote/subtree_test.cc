#include "launcher/remote/subtree.h"

#include <algorithm>

#include "tests/support/catch.h"

namespace hvd::launcher {
namespace {

int depth(const std::vector<int>& parents, int host) {
  int steps = 1;
  for (; parents[static_cast<std::size_t>(host)] >= 0; host = parents[static_cast<std::size_t>(host)]) ++steps;
  return steps;
}

TEST_CASE("hvdrun starts the agents of up to 64 hosts itself") {
  for (const int hosts : {1, 4, 64}) {
    const std::vector<int> parents = agent_tree(hosts);
    CHECK(static_cast<int>(parents.size()) == hosts);
    CHECK(std::all_of(parents.begin(), parents.end(), [](int parent) { return parent == -1; }));
  }
}

TEST_CASE("in larger jobs everybody starts 32 at most, and the tree is flat") {
  struct Case {
    int hosts, depth;
  };
  for (const Case& test : {Case{65, 2}, Case{1056, 2}, Case{1057, 3}, Case{20'000, 3}}) {
    const std::vector<int> parents = agent_tree(test.hosts);
    std::vector<int> children(parents.size() + 1);
    int deepest = 0;
    for (int host = 0; host < test.hosts; ++host) {
      const int parent = parents[static_cast<std::size_t>(host)];
      REQUIRE(parent < host);
      ++children[static_cast<std::size_t>(parent + 1)];
      deepest = std::max(deepest, depth(parents, host));
    }
    CHECK(*std::max_element(children.begin(), children.end()) == 32);
    CHECK(deepest == test.depth);
  }
}

}  // namespace
}  // namespace hvd::launcher
