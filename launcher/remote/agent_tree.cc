#include "launcher/remote/agent_tree.h"

namespace hvd::launcher {

namespace {

constexpr int kRadix = 32;

}  // namespace

std::vector<int> agent_tree(int hosts) {
  std::vector<int> parents(static_cast<std::size_t>(hosts), -1);
  if (hosts <= kMostChildren) return parents;
  for (int host = kRadix; host < hosts; ++host) parents[static_cast<std::size_t>(host)] = host / kRadix - 1;
  return parents;
}

}  // namespace hvd::launcher
