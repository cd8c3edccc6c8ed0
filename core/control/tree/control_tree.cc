#include "core/control/tree/control_tree.h"

#include <algorithm>

namespace hvd {

namespace {

// Hosts from `begin` to `end` - 1; the first is the node, the rest are divided among its children.
struct HostRange {
  int begin;
  int end;

  std::vector<HostRange> children(int radix) const {
    std::vector<HostRange> ranges;
    const int rest = end - begin - 1;
    const int parts = std::min(rest, radix);
    for (int i = 0, from = begin + 1; i < parts; ++i) {
      const int to = begin + 1 + static_cast<int>(static_cast<long>(rest) * (i + 1) / parts);
      ranges.push_back({from, to});
      from = to;
    }
    return ranges;
  }
};

RankSet ranks_of(const Topology& topology, HostRange hosts) {
  RankSet ranks;
  for (int host = hosts.begin; host < hosts.end; ++host) {
    for (const int rank : topology.hosts[static_cast<std::size_t>(host)]) ranks.add(RankSet(rank));
  }
  return ranks;
}

}  // namespace

bool ControlTree::is_root() const { return parent == kNoParent; }

bool ControlTree::is_leaf() const { return children.empty(); }

std::map<int, RankSet> ControlTree::sources(int self) const {
  std::map<int, RankSet> all = children;
  all.emplace(self, RankSet(self));
  return all;
}

ControlTree make_control_tree(const Topology& topology, int radix) {
  const auto leader_of = [&](int host) { return topology.hosts[static_cast<std::size_t>(host)].front(); };
  const int local_host = topology.host();
  ControlTree tree;
  const bool is_leader = topology.rank == leader_of(local_host);
  if (!is_leader) {
    tree.parent = leader_of(local_host);
    tree.depth = 1;
  }
  HostRange node{0, static_cast<int>(topology.hosts.size())};
  for (; node.begin != local_host; ++tree.depth) {
    if (is_leader) tree.parent = leader_of(node.begin);
    const auto children = node.children(radix);
    node = *std::find_if(children.begin(), children.end(), [&](HostRange range) { return local_host < range.end; });
  }
  if (!is_leader) return tree;
  for (const int rank : topology.hosts[static_cast<std::size_t>(local_host)]) {
    if (rank != topology.rank) tree.children.emplace(rank, RankSet(rank));
  }
  for (const HostRange child : node.children(radix)) {
    tree.children.emplace(leader_of(child.begin), ranks_of(topology, child));
  }
  return tree;
}

}  // namespace hvd
