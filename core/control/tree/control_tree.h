// The tree along which ranks exchange control messages. Pure.
//
// Inside a host every rank talks to the host's leader, its lowest rank; the leaders form a tree whose nodes have at
// most `radix` children, with rank 0 at the root. A node's subtree is a range of hosts, so that its ranks are few
// ranges.
#pragma once

#include <map>

#include "core/bootstrap/topology.h"
#include "core/control/protocol/rank_set.h"

namespace hvd {

inline constexpr int kControlRadix = 16;
inline constexpr int kNoParent = -1;

struct ControlTree {
  int parent = kNoParent;           // of this rank; rank 0 has none
  std::map<int, RankSet> children;  // with the ranks of their subtrees
  int depth = 0;                    // edges to rank 0

  bool is_root() const;
  bool is_leaf() const;
  // The senders of messages to this rank, itself included, with the ranks for which each sends.
  std::map<int, RankSet> sources(int self) const;
};

// As seen from the topology's rank.
ControlTree make_control_tree(const Topology& topology, int radix = kControlRadix);

}  // namespace hvd
