// The interface of the implementations that perform collectives: shared memory, two levels, TCP, plugins (MPI) and
// NCCL; the choice among them; and the factory that makes them. ops/ implements it; the executor calls it, on the
// thread that drives the engine.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/abort_flag.h"
#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/bootstrap/store.h"
#include "core/bootstrap/topology.h"
#include "core/config.h"
#include "core/device/device_completion.h"
#include "core/device/device_runtime.h"
#include "core/execution/tensor_arena.h"
#include "core/net/authentication.h"
#include "core/operation/collective_call.h"
#include "core/tensor/tensor.h"

namespace hvd {

// Thrown if a collective that this rank asked for is not performed because another rank has declined it. Not an Error:
// nothing is wrong.
struct Declined {};

class Backend {
 public:
  virtual ~Backend() = default;

  virtual const char* name() const = 0;

  // How well this backend suits the call; 0: it cannot perform it. Reads only what is the same on every rank of the
  // set, since all ranks must choose alike.
  virtual int score(const CollectiveCall& call) const = 0;

  // Performs the call and returns when outputs are complete and inputs may be reused. Throws PeerLost, Timeout, Aborted
  // or Internal: outputs are then undefined, and the backend is not used again. Throws Unsupported or Mismatch if the
  // call proves impossible before anything has happened: on every rank alike, and the backend remains usable.
  //
  // EntryMode::asking (only if can_be_asked()): throws Declined, on every rank that asked, if a rank has declined;
  // inputs are then unchanged, and the backend remains usable.
  virtual void run(const CollectiveCall& call) = 0;

  // A call in two halves, for callers that have other work before they wait. post() does what needs no other rank, so
  // that none has to wait for this one any more; false, without effect: not possible for this call, or not now. Then
  // wait_posted(), with the same call and before anything else, does the rest, as run() does.
  virtual bool post(const CollectiveCall&) { return false; }
  virtual void wait_posted(const CollectiveCall& call) { run(call); }

  // Whether ranks may enter collectives of this set without prior agreement: no output is written, and no input lost,
  // before every rank of the set has answered. The same on every rank.
  virtual bool can_be_asked(const ProcessSet&) const { return false; }

  // This rank's part in a collective that it declines: returns once every rank of the set knows. Independent of which
  // backend would perform it: the backends of a set exchange their votes together, so one of them is called.
  virtual void decline(const ProcessSet&, std::uint32_t /*call_id*/) {}

  // If run() has only enqueued the call in a device's stream: its end. Null: outputs are complete.
  virtual std::shared_ptr<DeviceCompletion> enqueued() const { return nullptr; }

  // Monitors the enqueued work. Returns when to call again; Deadline::max(): nothing is in progress. Throws as run()
  // does if that work has failed, or takes too long.
  virtual Deadline watch(TimePoint /*now*/) { return Deadline::max(); }

  // The run has ended with this error: cancels what is in progress on a device, which ends with the same error. The
  // backend is not used again.
  virtual void give_up(const Status& /*reason*/) noexcept {}

  // Sets new knobs. All ranks call it between the same two collectives.
  virtual void tune(const Knobs&) {}

  // Calls `late`, on the waiting thread, whenever an asking rank has waited for `timeout` for the others' votes; not
  // again for the same collective once it has returned false.
  virtual void set_late_callback(Duration /*timeout*/, const std::function<bool()>& /*late*/) {}
};

// Selects the backend for a call: the one with the highest score, the earlier one among equals. Pure: scores read only
// what is the same on every rank, so all ranks choose alike. Throws Unsupported if there is none.
// `backends`: a range of pointers of any kind.
template <typename Backends>
Backend& select_backend(const Backends& backends, const CollectiveCall& call) {
  Backend* best = nullptr;
  int best_score = 0;
  for (const auto& backend : backends) {
    const int score = backend->score(call);
    if (score > best_score) {
      best = &*backend;
      best_score = score;
    }
  }
  if (best == nullptr) {
    throw Unsupported("no backend can do " + std::string(collective_name(call.collective)) + " (" +
                      reduce_op_name(call.op) + ") of " + dtype_name(call.dtype) +
                      (call.device == kCpuDevice ? "" : " on an accelerator"));
  }
  return *best;
}

// ---- The factory

// References outlive the backends.
struct BackendContext {
  const Topology& topology;
  Store& store;  // of this membership epoch; backends use it during construction only
  const JobKey& job_key;
  const Config& config;
  AbortFlag& abort;
  const Log& log;
  std::string local_host_address;  // at which other hosts reach this one
  Deadline deadline;               // for construction
};

struct DataPlane {
  std::vector<std::unique_ptr<Backend>> backends;
  std::shared_ptr<TensorArena> arena;           // null where no memory is shared; may outlive the backends
  std::int64_t bucket_bytes = 0;                // of small tensors that are worth fusing
  std::shared_ptr<DeviceRuntime> devices = {};  // null: no backend supports tensors on devices
  std::string algorithms = {};                  // which algorithm serves what, and why: lines for people
};

// All ranks call it together. Core names no implementation: the code that makes the runtime passes the factory.
using DataPlaneFactory = std::function<DataPlane(const BackendContext&)>;

}  // namespace hvd
