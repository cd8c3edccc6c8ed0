#include "core/control/tree/control_tree.h"

#include "tests/support/catch.h"

using namespace hvd;

namespace {

std::vector<RankIdentity> on_hosts(int hosts, int ranks_per_host, bool in_turn) {
  std::vector<RankIdentity> identities;
  for (int rank = 0; rank < hosts * ranks_per_host; ++rank) {
    identities.push_back({.host_key = std::to_string(in_turn ? rank % hosts : rank / ranks_per_host), .hostname = "h"});
  }
  return identities;
}

// The ranks that `self` and its children send for.
RankSet subtree(int self, const ControlTree& tree) {
  RankSet ranks(self);
  for (const auto& [child, theirs] : tree.children) ranks.add(theirs);
  return ranks;
}

}  // namespace

TEST_CASE("On one host, and on few hosts with a rank each, the tree is a star") {
  const ControlTree one = make_control_tree(make_topology(0, on_hosts(1, 5, false)));
  CHECK(one.is_root());
  CHECK(one.children.size() == 4);
  const ControlTree seventeen = make_control_tree(make_topology(0, on_hosts(17, 1, false)));
  CHECK(seventeen.children.size() == 16);
  CHECK(make_control_tree(make_topology(16, on_hosts(17, 1, false))).parent == 0);
  CHECK(make_control_tree(make_topology(16, on_hosts(17, 1, false))).is_leaf());
  CHECK(make_control_tree(make_topology(0, on_hosts(1, 1, false))).is_leaf());
}

TEST_CASE("Parents and children agree, and every rank is in the subtree of one child") {
  for (const int hosts : {1, 2, 3, 7, 17, 18, 40, 100}) {
    for (const int ranks_per_host : {1, 3}) {
      for (const int radix : {1, 2, 16}) {
        for (const bool in_turn : {false, true}) {
          CAPTURE(hosts, ranks_per_host, radix, in_turn);
          const auto identities = on_hosts(hosts, ranks_per_host, in_turn);
          std::vector<ControlTree> trees;
          for (int rank = 0; rank < hosts * ranks_per_host; ++rank) {
            trees.push_back(make_control_tree(make_topology(rank, identities), radix));
          }
          CHECK(subtree(0, trees.front()) == RankSet(0, hosts * ranks_per_host));
          for (int rank = 0; rank < hosts * ranks_per_host; ++rank) {
            const ControlTree& tree = trees[static_cast<std::size_t>(rank)];
            CHECK(tree.is_root() == (rank == 0));
            CHECK(static_cast<int>(tree.children.size()) <= radix + ranks_per_host - 1);
            int below = 1;
            for (const auto& [child, ranks] : tree.children) {
              CHECK(trees[static_cast<std::size_t>(child)].parent == rank);
              CHECK(trees[static_cast<std::size_t>(child)].depth == tree.depth + 1);
              CHECK(subtree(child, trees[static_cast<std::size_t>(child)]) == ranks);
              below += ranks.count();
            }
            CHECK(subtree(rank, tree).count() == below);
          }
        }
      }
    }
  }
}

TEST_CASE("Ten thousand hosts are four steps deep, and a subtree is one range of ranks") {
  const auto identities = on_hosts(12'500, 8, false);
  int deepest = 0;
  for (const int rank : {8, 99'992, 50'000, 99'999}) {
    int depth = 0;
    for (int node = rank; node != 0; ++depth) {
      const ControlTree tree = make_control_tree(make_topology(node, identities));
      for (const auto& [child, ranks] : tree.children) CHECK(ranks.ranges().size() == 1);
      node = tree.parent;
    }
    deepest = std::max(deepest, depth);
  }
  CHECK(deepest == 5);  // the last one inside the host
}
