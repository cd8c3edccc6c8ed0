#include "core/runtime/prepared_operations.h"

#include "core/base/error.h"

namespace hvd {

CallerReference PreparedOperations::prepare(const Call& call) {
  const ProcessSets::Entry target = sets_.find_local(call.process_set);
  return target.communicator->prepare(in_numbering_of(*target.set, call), target.communicator);
}

void PreparedOperations::throw_stale(const Operation& operation) {
  if (!operation.prepared) throw InvalidArgument("only an operation that was prepared can be started");
  throw InvalidArgument("'" + operation.spec.name +
                        "' was prepared before hvd was shut down and initialised anew, or in a process set that was "
                        "removed: prepare it again");
}

}  // namespace hvd
