#include "ops/host/host_backend.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "core/tensor/tensor_view.h"

namespace hvd {

HostBackend::HostBackend(std::shared_ptr<HostGroup> group, const Topology& topology)
    : group_(std::move(group)), hosts_(topology.hosts) {}

int HostBackend::score(const CollectiveCall& call) const {
  if (call.device != kCpuDevice || call.collective == Collective::join) return 0;
  const bool reduces = call.collective == Collective::allreduce || call.collective == Collective::reducescatter;
  if (reduces && !reduction_exists(call.dtype, call.op)) return 0;
  if (std::find(hosts_.begin(), hosts_.end(), call.set->ranks) == hosts_.end()) return 0;
  return 100;
}

void HostBackend::run(const CollectiveCall& call) {
  const Reduction reduction{.dtype = call.dtype, .op = call.op, .prescale = call.prescale, .postscale = call.postscale};
  switch (call.collective) {
    case Collective::allreduce: return group_->allreduce(call.pieces, reduction);
    case Collective::allgather: return group_->allgather(call.pieces, call.counts, call.dtype);
    case Collective::broadcast: return group_->broadcast(call.pieces, call.dtype, call.root);
    case Collective::reducescatter: return group_->reducescatter(call.pieces, call.counts, reduction);
    case Collective::barrier: return group_->barrier();
    case Collective::alltoall:
      if (call.pieces.size() != 1) throw Internal("alltoall of several tensors in one call");
      return group_->alltoall(call.pieces[0], call.counts, call.dtype);
    case Collective::join: throw Internal("join moves no data");
  }
}

}  // namespace hvd
