#include "ops/host/host_context.h"

#include <algorithm>

#include "ops/host/places.h"

namespace hvd {

HostContext::HostContext(std::span<std::byte> region, TensorArena* shared_arena, int rank, int ranks,
                         const WindowOptions& options, const AbortFlag* abort,
                         const WindowWait::Describe& describe_rank)
    : window(region, rank, ranks, options, abort, describe_rank),
      arena(shared_arena),
      describe(describe_rank),
      sources(static_cast<std::size_t>(ranks)) {
  // With fewer CPUs than ranks, measured times depend more on scheduling than on the form.
  if (ranks == 1 || window.oversubscribed()) return;
  const std::byte readable{peers.meet(exchange_notes(*this, peers.introduction()))};
  const std::vector<std::byte> answers = exchange_notes(*this, readable);
  reads = std::count(answers.begin(), answers.end(), std::byte{true}) == ranks;
}

}  // namespace hvd
