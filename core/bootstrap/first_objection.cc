#include "core/bootstrap/first_objection.h"

namespace hvd {

std::string first_objection(Store& store, const Topology& topology, const std::string& key,
                            const std::string& objection, Deadline deadline) {
  const std::string answer_key = key + "/all";
  if (topology.rank != 0) {
    store.set(key + "/" + std::to_string(topology.rank), objection);
    return store.get(answer_key, deadline);
  }
  std::string first = objection.empty() ? "" : topology.describe(0) + ": " + objection;
  for (int rank = 1; rank < topology.size; ++rank) {
    const std::string other = store.get(key + "/" + std::to_string(rank), deadline);
    if (first.empty() && !other.empty()) first = topology.describe(rank) + ": " + other;
  }
  store.set(answer_key, first);
  return first;
}

}  // namespace hvd
