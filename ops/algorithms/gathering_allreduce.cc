// The two algorithms in which every rank gathers the values of all ranks, and reduces everything: for messages so short
// that only latency matters. Bytes sent and received per rank: (N-1) S, in the tensors' own type, and N times the
// arithmetic of a ring. Slices are folded in the canonical order, so that all ranks compute the same bits.
//
// One shot: every rank sends all its values to each other rank. Steps: 1, so one latency.
//
// Bruck: ceil(log2 N) rounds. In round k, with d = 2^k, position p sends what it has collected, the values of p, ...,
// p+d-1, to p-d, and receives those of p+d, ..., p+2d-1 from p+d; the last round sends only what is missing. log2 N
// messages in as many latencies, where one shot has N-1 messages in one: suited to short messages between many ranks,
// or where a message costs the processor more than its transmission takes.
// Source: J. Bruck, C.-T. Ho, S. Kipnis, E. Upfal and D. Weathersby, "Efficient algorithms for all-to-all
// communications in multiport message-passing systems", 1997 (concatenation).
#include <algorithm>
#include <memory>
#include <vector>

#include "ops/algorithms/allreduce.h"

namespace hvd {

void one_shot_allreduce(const SlicedReduction& args) {
  args.make_all_ready();
  const int n = args.ranks();
  const auto own = args.values_in(0, args.elements());
  const auto others = std::make_unique_for_overwrite<std::byte[]>(own.size() * static_cast<std::size_t>(n - 1));
  std::vector<const std::byte*> from(static_cast<std::size_t>(n), own.data());
  std::vector<Transport::RequestId> requests;
  std::byte* place = others.get();
  for (int i = 1; i < n && !own.empty(); ++i, place += own.size()) {
    const int source = args.around(args.position - i), target = args.around(args.position + i);
    from[static_cast<std::size_t>(source)] = place;
    requests.push_back(args.transport.post_send(args.member(target), args.tag, own));
    requests.push_back(args.transport.post_receive(args.member(source), args.tag, {place, own.size()}));
  }
  // Waits for the sends, too: results may be in the values' memory.
  for (const auto request : requests) args.transport.wait(request, args.deadline);
  args.fold_all(from);
  args.make_all_complete();
}

void bruck_allreduce(const SlicedReduction& args) {
  args.make_all_ready();
  const int n = args.ranks();
  const auto own = args.values_in(0, args.elements());
  if (own.empty()) return;
  const std::size_t block = own.size();
  // Block i contains the values of position + i.
  const auto memory = std::make_unique_for_overwrite<std::byte[]>(block * static_cast<std::size_t>(n));
  const std::span<std::byte> gathered(memory.get(), block * static_cast<std::size_t>(n));
  std::copy(own.begin(), own.end(), gathered.begin());

  std::vector<Transport::RequestId> sends;
  Tag tag = args.tag;
  for (int distance = 1; distance < n; distance *= 2, ++tag.step) {
    const std::size_t bytes = static_cast<std::size_t>(std::min(distance, n - distance)) * block;
    const int target = args.member(args.around(args.position - distance));
    const int source = args.member(args.around(args.position + distance));
    sends.push_back(args.transport.post_send(target, tag, gathered.first(bytes)));
    const auto incoming = gathered.subspan(static_cast<std::size_t>(distance) * block, bytes);
    args.transport.wait(args.transport.post_receive(source, tag, incoming), args.deadline);
  }
  for (const auto send : sends) args.transport.wait(send, args.deadline);

  std::vector<const std::byte*> from(static_cast<std::size_t>(n));
  for (int i = 0; i < n; ++i) {
    from[static_cast<std::size_t>(args.around(args.position + i))] = memory.get() + static_cast<std::size_t>(i) * block;
  }
  args.fold_all(from);
  args.make_all_complete();
}

}  // namespace hvd
