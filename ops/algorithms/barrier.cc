// Dissemination barrier.
//
// In round k every rank sends to the rank 2^k after it and receives from the rank 2^k before it; after ceil(log2 N)
// rounds each has received, directly or indirectly, from all. Empty messages, one sent and one received per round.
// Source: D. Hensgen, R. Finkel and U. Manber, "Two algorithms for barrier synchronization", 1988.
#include "ops/algorithms/exchanges.h"

#include <cstddef>

namespace hvd {

void dissemination_barrier(Transport& transport, std::span<const int> members, int position, Tag tag,
                           Deadline deadline) {
  const std::size_t n = members.size();
  const auto own = static_cast<std::size_t>(position);
  for (std::size_t distance = 1; distance < n; distance *= 2, ++tag.step) {
    const auto heard = transport.post_receive(members[(own + n - distance) % n], tag, {});
    const auto told = transport.post_send(members[(own + distance) % n], tag, {});
    transport.wait(heard, deadline);
    transport.wait(told, deadline);
  }
}

}  // namespace hvd
