#include "core/tensor/collective.h"

namespace hvd {

const char* collective_name(Collective collective) {
  switch (collective) {
    case Collective::allreduce: return "allreduce";
    case Collective::allgather: return "allgather";
    case Collective::broadcast: return "broadcast";
    case Collective::alltoall: return "alltoall";
    case Collective::reducescatter: return "reducescatter";
    case Collective::barrier: return "barrier";
    case Collective::join: return "join";
  }
  return "unknown";
}

const char* reduce_op_name(ReduceOp op) {
  switch (op) {
    case ReduceOp::average: return "average";
    case ReduceOp::sum: return "sum";
    case ReduceOp::adasum: return "adasum";
    case ReduceOp::min: return "min";
    case ReduceOp::max: return "max";
    case ReduceOp::product: return "product";
  }
  return "unknown";
}

}  // namespace hvd
