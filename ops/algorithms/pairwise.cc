// Collectives by direct exchange: in step r every rank sends to the r-th rank after it and receives from the r-th
// before it.
//
// Steps: N-1, of which a few run at a time and none waits for another's data. The ranks are staggered, so that no rank
// is the target of two in a step.
#include "ops/algorithms/exchanges.h"

#include <algorithm>
#include <deque>
#include <vector>

namespace hvd {

namespace {

constexpr std::size_t kStepsInFlight = 4;

// Block i of the buffer: the bytes [bounds[i], bounds[i + 1]).
template <typename Byte>
std::vector<std::span<Byte>> blocks_of(Byte* buffer, std::span<const std::int64_t> bounds) {
  std::vector<std::span<Byte>> blocks;
  for (std::size_t i = 0; i + 1 < bounds.size(); ++i) {
    const auto size = static_cast<std::size_t>(bounds[i + 1] - bounds[i]);
    blocks.push_back(size == 0 ? std::span<Byte>{} : std::span<Byte>(buffer + bounds[i], size));
  }
  return blocks;
}

// outgoing[d] goes to position d, incoming[s] comes from position s; this rank's own entries are ignored. The block
// that one rank sends to another must be as long as the other expects; empty blocks need no message. Messages take
// steps from tag.step upwards.
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

}  // namespace

void pairwise_allgather(Transport& transport, std::span<const int> members, int position, std::byte* buffer,
                        std::span<const std::int64_t> block_bounds, Tag tag, Deadline deadline) {
  const auto incoming = blocks_of(buffer, block_bounds);
  const std::vector<std::span<const std::byte>> outgoing(members.size(), incoming[static_cast<std::size_t>(position)]);
  pairwise_exchange(transport, members, position, outgoing, incoming, tag, deadline);
}

void pairwise_alltoall(Transport& transport, std::span<const int> members, int position, const std::byte* input,
                       std::span<const std::int64_t> input_bounds, std::byte* output,
                       std::span<const std::int64_t> output_bounds, Tag tag, Deadline deadline) {
  const auto outgoing = blocks_of(input, input_bounds);
  const auto incoming = blocks_of(output, output_bounds);
  const auto own = static_cast<std::size_t>(position);
  std::copy(outgoing[own].begin(), outgoing[own].end(), incoming[own].begin());
  pairwise_exchange(transport, members, position, outgoing, incoming, tag, deadline);
}

}  // namespace hvd
