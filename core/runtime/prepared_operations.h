// Operations that are prepared once and started many times: the call is checked, and its memory resolved, only once.
// Any thread.
#pragma once

#include <memory>
#include <utility>

#include "core/base/error.h"
#include "core/runtime/communicator.h"
#include "core/runtime/process_sets.h"

namespace hvd {

// All but prepare() throw InvalidArgument if this runtime, or the process set as it is now, is not the one that the
// operation was prepared in.
class PreparedOperations {
 public:
  // `global`: of all ranks. `sets` outlives this object.
  PreparedOperations(ProcessSets& sets, std::shared_ptr<Communicator> global)
      : sets_(sets), global_(std::move(global)) {}

  // As in Communicator, for the process set of the call; InvalidArgument also if this rank is not in it.
  CallerReference prepare(const Call& call) {
    const ProcessSets::Entry target = sets_.find_local(call.process_set);
    return target.communicator->prepare(in_numbering_of(*target.set, call), target.communicator);
  }
  void start(Operation& operation) {
    with_communicator(operation, [&](Communicator& communicator) { communicator.start(operation); });
  }
  void run(Operation& operation, Duration timeout) {
    with_communicator(operation, [&](Communicator& communicator) { communicator.run(operation, timeout); });
  }
  // For the caller of an operation that caller_completes(): wait_posted() before it waits for at most this time,
  // hand_to_engine() if it does not.
  void wait_posted(Operation& operation, Duration timeout) {
    with_communicator(operation, [&](Communicator& communicator) { communicator.wait_posted(operation, timeout); });
  }
  void hand_to_engine(Operation& operation) {
    with_communicator(operation, [&](Communicator& communicator) { communicator.hand_to_engine(operation); });
  }

 private:
  // Calls use(communicator) with the operation's.
  template <typename Use>
  void with_communicator(const Operation& operation, const Use& use) {
    if (operation.spec.process_set == kGlobalProcessSet) return use(checked(operation, global_));
    const ProcessSets::Entry target = sets_.find_local(operation.spec.process_set);
    use(checked(operation, target.communicator));
  }
  static Communicator& checked(const Operation& operation, const std::shared_ptr<Communicator>& present) {
    if (!operation.prepared) throw InvalidArgument("only an operation that was prepared can be started");
    const std::weak_ptr<const void>& own = operation.prepared->communicator;
    if (!own.owner_before(present) && !present.owner_before(own)) return *present;
    throw InvalidArgument("'" + operation.spec.name +
                          "' was prepared before hvd was shut down and initialised anew, or in a process set that was "
                          "removed: prepare it again");
  }

  ProcessSets& sets_;
  const std::shared_ptr<Communicator> global_;
};

}  // namespace hvd
