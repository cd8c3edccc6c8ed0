// What moves the data of a collective: shared memory, TCP, and later MPI and NCCL. ops/ implements it, the executor
// calls it, on the engine thread only.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "core/collective/collective_call.h"
#include "core/device/device_completion.h"
#include "core/tuning/knobs.h"

namespace hvd {

// A collective that this rank asked for does not take place: another rank has declined it. Not an Error: nothing is
// wrong.
struct Declined {};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual const char* name() const = 0;

  // How well this backend suits the call; 0: it cannot do it. Reads only what is the same on every rank of the set,
  // since all ranks must choose alike.
  virtual int score(const CollectiveCall& call) const = 0;

  // Performs the call and returns when outputs are complete and inputs may be reused. Throws PeerLost, Timeout,
  // Aborted or Internal; after a throw the backend is not used again. Outputs are then undefined. Unsupported and
  // Mismatch are for what turns out to be impossible before anything has happened: on every rank alike, and the backend
  // can be used as before.
  //
  // Entry::asking (only if can_be_asked()): throws Declined, on every rank that asked, if a rank has declined; inputs
  // are then as they were, and the backend can be used as before.
  virtual void run(const CollectiveCall& call) = 0;

  // Whether ranks may enter collectives of this set without having agreed on them: no output is written, and no input
  // lost, before every rank of the set has been heard. The same on every rank.
  virtual bool can_be_asked(const ProcessSet&) const { return false; }

  // This rank's part in a collective that it does not want: returns once every rank of the set knows. Whoever would
  // perform it: the backends that serve a set have their answers together, and one of them is told.
  virtual void decline(const ProcessSet&, std::uint32_t /*call_id*/) {}

  // Where run() has only put the call into a device's stream: the end of that. Null: outputs are complete.
  virtual std::shared_ptr<DeviceCompletion> enqueued() const { return nullptr; }

  // Looks after what it has put there. Returns when to be called again; Deadline::max(): nothing is under way. Throws
  // as run() does if that has failed, or takes too long.
  virtual Deadline watch(TimePoint /*now*/) { return Deadline::max(); }

  // The run has ended with this error: what is still under way on a device is broken off, and ends with it, too. The
  // backend is not used again.
  virtual void give_up(const Status& /*reason*/) noexcept {}

  // Uses these from here on. All ranks call it between the same two collectives.
  virtual void tune(const Knobs&) {}

  // Has `late` called, on the thread that waits, whenever a rank that asks has waited for so long for the others'
  // answers; not any more for this collective once it has returned false.
  virtual void set_late_callback(Duration /*timeout*/, const std::function<bool()>& /*late*/) {}
};

}  // namespace hvd
