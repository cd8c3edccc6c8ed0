#include "ops/algorithms/bruck_allreduce.h"

#include <algorithm>
#include <memory>
#include <vector>

namespace hvd {

void bruck_allreduce(const SlicedReduction& work) {
  work.make_all_ready();
  const int n = work.ranks();
  const auto own = work.values_in(0, work.elements());
  if (own.empty()) return;
  const std::size_t block = own.size();
  // Block i contains the values of position + i.
  const auto memory = std::make_unique_for_overwrite<std::byte[]>(block * static_cast<std::size_t>(n));
  const std::span<std::byte> gathered(memory.get(), block * static_cast<std::size_t>(n));
  std::copy(own.begin(), own.end(), gathered.begin());

  std::vector<Transport::RequestId> sends;
  Tag tag = work.tag;
  for (int distance = 1; distance < n; distance *= 2, ++tag.step) {
    const std::size_t bytes = static_cast<std::size_t>(std::min(distance, n - distance)) * block;
    const int target = work.member(work.around(work.position - distance));
    const int source = work.member(work.around(work.position + distance));
    sends.push_back(work.transport.post_send(target, tag, gathered.first(bytes)));
    const auto incoming = gathered.subspan(static_cast<std::size_t>(distance) * block, bytes);
    work.transport.wait(work.transport.post_receive(source, tag, incoming), work.deadline);
  }
  for (const auto send : sends) work.transport.wait(send, work.deadline);

  std::vector<const std::byte*> from(static_cast<std::size_t>(n));
  for (int i = 0; i < n; ++i) {
    from[static_cast<std::size_t>(work.around(work.position + i))] = memory.get() + static_cast<std::size_t>(i) * block;
  }
  work.fold_all(from);
  work.make_all_complete();
}

}  // namespace hvd
