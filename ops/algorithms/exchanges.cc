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
void pairwise_exchange(const ExchangeContext& context, std::span<const std::span<const std::byte>> outgoing,
                       std::span<const std::span<std::byte>> incoming) {
  const std::size_t n = context.members.size();
  Transport& transport = context.transport;
  Tag tag = context.tag;
  std::deque<Transport::RequestId> pending;
  for (std::size_t step = 1; step < n; ++step, ++tag.step) {
    const std::size_t source = (context.index() + n - step) % n, target = (context.index() + step) % n;
    if (!incoming[source].empty()) {
      pending.push_back(transport.post_receive(context.members[source], tag, incoming[source]));
    }
    if (!outgoing[target].empty())
      pending.push_back(transport.post_send(context.members[target], tag, outgoing[target]));
    for (; pending.size() > 2 * (kStepsInFlight - 1); pending.pop_front()) {
      transport.wait(pending.front(), context.deadline);
    }
  }
  for (const auto request : pending) transport.wait(request, context.deadline);
}

}  // namespace

// Dissemination, as of votes between many ranks (vote_exchange.h), with empty messages.
void dissemination_barrier(const ExchangeContext& context) {
  const std::size_t n = context.members.size();
  Tag tag = context.tag;
  for (std::size_t distance = 1; distance < n; distance *= 2, ++tag.step) {
    const auto received =
        context.transport.post_receive(context.members[(context.index() + n - distance) % n], tag, {});
    const auto sent = context.transport.post_send(context.members[(context.index() + distance) % n], tag, {});
    context.transport.wait(received, context.deadline);
    context.transport.wait(sent, context.deadline);
  }
}

// Broadcast along a chain: root, root+1, ..., root-1.
//
// A segment is forwarded as soon as it has arrived. With S bytes in c segments and N ranks: (N-2+c) segment times, so S
// / bandwidth for large S, which is optimal; every rank but the last sends S bytes. Small messages take N-1 latencies
// where a binomial tree would take log2 N, but several consecutive ones overlap along the chain.
void chain_broadcast(const ExchangeContext& context, int root, std::span<std::byte> data) {
  const std::size_t n = context.members.size();
  Transport& transport = context.transport;
  const bool receives = context.position != root;
  const bool sends = (context.position + 1) % static_cast<int>(n) != root;
  const int from = context.members[(context.index() + n - 1) % n], to = context.members[(context.index() + 1) % n];
  const std::size_t segments = (data.size() + kSegmentBytes - 1) / kSegmentBytes;

  const auto segment = [&](std::size_t i) {
    return data.subspan(i * kSegmentBytes, std::min(kSegmentBytes, data.size() - i * kSegmentBytes));
  };
  const auto tag_of = [&](std::size_t i) {
    Tag tag = context.tag;
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
      transport.wait(incoming.front(), context.deadline);
      incoming.pop_front();
    }
    if (sends) outgoing.push_back(transport.post_send(to, tag_of(i), segment(i)));
  }
  for (const auto request : outgoing) transport.wait(request, context.deadline);
}

void pairwise_allgather(const ExchangeContext& context, std::byte* buffer, std::span<const std::int64_t> block_bounds) {
  const auto incoming = blocks_of(buffer, block_bounds);
  const std::vector<std::span<const std::byte>> outgoing(context.members.size(), incoming[context.index()]);
  pairwise_exchange(context, outgoing, incoming);
}

void pairwise_alltoall(const ExchangeContext& context, const std::byte* input,
                       std::span<const std::int64_t> input_bounds, std::byte* output,
                       std::span<const std::int64_t> output_bounds) {
  const auto outgoing = blocks_of(input, input_bounds);
  const auto incoming = blocks_of(output, output_bounds);
  std::copy(outgoing[context.index()].begin(), outgoing[context.index()].end(), incoming[context.index()].begin());
  pairwise_exchange(context, outgoing, incoming);
}

}  // namespace hvd
