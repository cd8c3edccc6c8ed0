#include "ops/algorithms/allreduce.h"

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

// outgoing[d] goes to position d, incoming[s] comes from position s; this rank's own entries are ignored.
//
// Direct exchange: in step r every rank sends to the r-th rank after it and receives from the r-th before it. Steps:
// N-1, of which a few run at a time and none waits for another's data. The ranks are staggered, so that no rank is the
// target of two in a step.
void pairwise_exchange(const Party& party, std::span<const std::span<const std::byte>> outgoing,
                       std::span<const std::span<std::byte>> incoming) {
  const std::size_t n = party.members.size();
  Transport& transport = party.transport;
  Tag tag = party.tag;
  std::deque<Transport::RequestId> pending;
  for (std::size_t step = 1; step < n; ++step, ++tag.step) {
    const std::size_t source = (party.index() + n - step) % n, target = (party.index() + step) % n;
    if (!incoming[source].empty()) {
      pending.push_back(transport.post_receive(party.members[source], tag, incoming[source]));
    }
    if (!outgoing[target].empty()) pending.push_back(transport.post_send(party.members[target], tag, outgoing[target]));
    for (; pending.size() > 2 * (kStepsInFlight - 1); pending.pop_front()) {
      transport.wait(pending.front(), party.deadline);
    }
  }
  for (const auto request : pending) transport.wait(request, party.deadline);
}

}  // namespace

// Dissemination, as of words between many ranks (word_exchange.h), with empty messages.
void dissemination_barrier(const Party& party) {
  const std::size_t n = party.members.size();
  Tag tag = party.tag;
  for (std::size_t distance = 1; distance < n; distance *= 2, ++tag.step) {
    const auto heard = party.transport.post_receive(party.members[(party.index() + n - distance) % n], tag, {});
    const auto told = party.transport.post_send(party.members[(party.index() + distance) % n], tag, {});
    party.transport.wait(heard, party.deadline);
    party.transport.wait(told, party.deadline);
  }
}

// Broadcast along a chain: root, root+1, ..., root-1.
//
// A segment is forwarded as soon as it has arrived. With S bytes in c segments and N ranks: (N-2+c) segment times, so S
// / bandwidth for large S, which is optimal; every rank but the last sends S bytes. Small messages take N-1 latencies
// where a binomial tree would take log2 N, but several consecutive ones overlap along the chain.
void chain_broadcast(const Party& party, int root, std::span<std::byte> data) {
  const std::size_t n = party.members.size();
  Transport& transport = party.transport;
  const bool receives = party.position != root;
  const bool sends = (party.position + 1) % static_cast<int>(n) != root;
  const int from = party.members[(party.index() + n - 1) % n], to = party.members[(party.index() + 1) % n];
  const std::size_t segments = (data.size() + kSegmentBytes - 1) / kSegmentBytes;

  const auto segment = [&](std::size_t i) {
    return data.subspan(i * kSegmentBytes, std::min(kSegmentBytes, data.size() - i * kSegmentBytes));
  };
  const auto tag_of = [&](std::size_t i) {
    Tag tag = party.tag;
    tag.step += static_cast<std::uint32_t>(i);
    return tag;
  };

  std::deque<Transport::RequestId> incoming;
  std::size_t posted = 0;
  std::vector<Transport::RequestId> outgoing;
  for (std::size_t i = 0; i < segments; ++i) {
    if (receives) {
      for (; posted < std::min(i + kBroadcastReceivesAhead, segments); ++posted) {
        incoming.push_back(transport.post_receive(from, tag_of(posted), segment(posted)));
      }
      transport.wait(incoming.front(), party.deadline);
      incoming.pop_front();
    }
    if (sends) outgoing.push_back(transport.post_send(to, tag_of(i), segment(i)));
  }
  for (const auto request : outgoing) transport.wait(request, party.deadline);
}

void pairwise_allgather(const Party& party, std::byte* buffer, std::span<const std::int64_t> block_bounds) {
  const auto incoming = blocks_of(buffer, block_bounds);
  const std::vector<std::span<const std::byte>> outgoing(party.members.size(), incoming[party.index()]);
  pairwise_exchange(party, outgoing, incoming);
}

void pairwise_alltoall(const Party& party, const std::byte* input, std::span<const std::int64_t> input_bounds,
                       std::byte* output, std::span<const std::int64_t> output_bounds) {
  const auto outgoing = blocks_of(input, input_bounds);
  const auto incoming = blocks_of(output, output_bounds);
  std::copy(outgoing[party.index()].begin(), outgoing[party.index()].end(), incoming[party.index()].begin());
  pairwise_exchange(party, outgoing, incoming);
}

}  // namespace hvd
