#include "ops/algorithms/one_shot_allreduce.h"

#include <memory>
#include <vector>

namespace hvd {

void one_shot_allreduce(const SlicedReduction& work) {
  work.make_all_ready();
  const int n = work.ranks();
  const auto own = work.values_in(0, work.elements());
  const auto others = std::make_unique_for_overwrite<std::byte[]>(own.size() * static_cast<std::size_t>(n - 1));
  std::vector<const std::byte*> from(static_cast<std::size_t>(n), own.data());
  std::vector<Transport::RequestId> requests;
  std::byte* place = others.get();
  for (int i = 1; i < n && !own.empty(); ++i, place += own.size()) {
    const int source = work.around(work.position - i), target = work.around(work.position + i);
    from[static_cast<std::size_t>(source)] = place;
    requests.push_back(work.transport.post_send(work.member(target), work.tag, own));
    requests.push_back(work.transport.post_receive(work.member(source), work.tag, {place, own.size()}));
  }
  // Waits for the sends, too: results may be in the values' memory.
  for (const auto request : requests) work.transport.wait(request, work.deadline);
  work.fold_all(from);
  work.make_all_complete();
}

}  // namespace hvd
