#include "tools/bench/vocabulary.h"

#include "tools/bench/element_type.h"

namespace hvd::bench {

std::size_t size_of(hvd_dtype dtype) {
  return with_type(dtype, []<typename T>(std::type_identity<T>) { return sizeof(T); });
}

bool reduces(Collective collective) {
  return collective == Collective::allreduce || collective == Collective::reducescatter;
}

bool divides(Collective collective) {
  return collective == Collective::allgather || collective == Collective::reducescatter ||
         collective == Collective::alltoall;
}

double busbw_factor(Collective collective, int ranks) {
  const double others = static_cast<double>(ranks - 1) / ranks;
  switch (collective) {
    case Collective::allreduce: return 2 * others;
    case Collective::allgather:
    case Collective::reducescatter:
    case Collective::alltoall: return others;
    default: return 1;
  }
}

}  // namespace hvd::bench
