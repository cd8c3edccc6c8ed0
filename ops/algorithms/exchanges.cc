#include "ops/algorithms/exchanges.h"

#include <algorithm>
#include <deque>
#include <vector>

namespace hvd {

namespace {

constexpr std::size_t kSegmentBytes = 64 << 10;
constexpr std::size_t kBroadcastReceivesAhead = 8;
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

// Dissemination barrier.
//
// In round k every rank sends to the rank 2^k after it and receives from the rank 2^k before it; after ceil(log2 N)
// rounds each has received, directly or indirectly, from all. Empty messages, one sent and one received per round.
// Source: D. Hensgen, R. Finkel and U. Manber, "Two algorithms for barrier synchronization", 1988.
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

// Broadcast along a chain: root, root+1, ..., root-1.
//
// A segment is forwarded as soon as it has arrived. With S bytes in c segments and N ranks: (N-2+c) segment times, so S
// / bandwidth for large S, which is optimal; every rank but the last sends S bytes. Small messages take N-1 latencies
// where a binomial tree would take log2 N, but several consecutive ones overlap along the chain.
void chain_broadcast(Transport& transport, std::span<const int> members, int position, int root,
                     std::span<std::byte> data, Tag tag, Deadline deadline) {
  const int n = static_cast<int>(members.size());
  const bool receives = position != root;
  const bool sends = (position + 1) % n != root;
  const int from = members[static_cast<std::size_t>((position + n - 1) % n)];
  const int to = members[static_cast<std::size_t>((position + 1) % n)];
  const std::size_t segments = (data.size() + kSegmentBytes - 1) / kSegmentBytes;

  const auto segment = [&](std::size_t i) {
    return data.subspan(i * kSegmentBytes, std::min(kSegmentBytes, data.size() - i * kSegmentBytes));
  };
  const auto tag_of = [&](std::size_t i) {
    return Tag{
        .process_set = tag.process_set, .step = tag.step + static_cast<std::uint32_t>(i), .sequence = tag.sequence};
  };

  std::deque<Transport::RequestId> incoming;
  std::size_t posted = 0;
  std::vector<Transport::RequestId> outgoing;
  for (std::size_t i = 0; i < segments; ++i) {
    if (receives) {
      for (; posted < std::min(i + kBroadcastReceivesAhead, segments); ++posted) {
        incoming.push_back(transport.post_receive(from, tag_of(posted), segment(posted)));
      }
      transport.wait(incoming.front(), deadline);
      incoming.pop_front();
    }
    if (sends) outgoing.push_back(transport.post_send(to, tag_of(i), segment(i)));
  }
  for (const auto request : outgoing) transport.wait(request, deadline);
}

// Direct exchange: in step r every rank sends to the r-th rank after it and receives from the r-th
// before it.
//
// Steps: N-1, of which a few run at a time and none waits for another's data. The ranks are staggered, so that no rank
// is the target of two in a step.
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
