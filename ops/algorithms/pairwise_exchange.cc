#include "ops/algorithms/pairwise_exchange.h"

#include <deque>

namespace hvd {

namespace {

constexpr std::size_t kStepsInFlight = 4;

}  // namespace

void pairwise_exchange(Transport& transport, std::span<const int> members, int position,
                       std::span<const std::span<const std::byte>> outgoing,
                       std::span<const std::span<std::byte>> incoming, Tag tag, Deadline deadline) {
  const std::size_t n = members.size();
  const auto own = static_cast<std::size_t>(position);
  std::deque<Transport::RequestId> pending;
  for (std::size_t step = 1; step < n; ++step, ++tag.step) {
    const std::size_t source = (own + n - step) % n;
    const std::size_t target = (own + step) % n;
    if (!incoming[source].empty()) {
      pending.push_back(transport.post_receive(members[source], tag, incoming[source]));
    }
    if (!outgoing[target].empty()) pending.push_back(transport.post_send(members[target], tag, outgoing[target]));
    for (; pending.size() > 2 * (kStepsInFlight - 1); pending.pop_front()) transport.wait(pending.front(), deadline);
  }
  for (const auto request : pending) transport.wait(request, deadline);
}

}  // namespace hvd
