// Broadcast along a chain: root, root+1, ..., root-1.
//
// A segment is forwarded as soon as it has arrived. With S bytes in c segments and N ranks: (N-2+c) segment times, so S
// / bandwidth for large S, which is optimal; every rank but the last sends S bytes. Small messages take N-1 latencies
// where a binomial tree would take log2 N, but several consecutive ones overlap along the chain.
#include "ops/algorithms/exchanges.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <vector>

namespace hvd {

namespace {

constexpr std::size_t kSegmentBytes = 64 << 10;
constexpr std::size_t kBroadcastReceivesAhead = 8;

}  // namespace

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

}  // namespace hvd
