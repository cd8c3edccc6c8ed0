// An NCCL communicator of this rank's GPU, in non-blocking mode: no call of NCCL's waits for another rank, and waits
// poll it, with a deadline and the AbortFlag. (NCCL then starts each group of calls on another thread, which costs some
// tens of microseconds: the price of being able to abort.)
//
// Owned and used by one backend, on the thread that drives the engine; no other object calls NCCL for it. The device's
// context must be current in all functions.
#pragma once

#include <memory>

#include "core/base/abort_flag.h"
#include "core/base/clock.h"
#include "ops/nccl/library.h"

namespace hvd::nccl {

class NcclCommunicator {
 public:
  // All ranks must construct it together, with rank 0's id; returns when all have. Throws Timeout, the AbortFlag's
  // reason, or the errors of Library::check.
  NcclCommunicator(std::shared_ptr<const Library> library, const UniqueId& id, int rank, int size,
                   const AbortFlag& abort, Deadline deadline);
  ~NcclCommunicator() { break_off(); }
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  Handle handle() const { return handle_; }
  const Library& library() const { return *library_; }
  const Table& call() const { return library_->call(); }

  // Throws if `result` is a failure; waits until the communicator has completed it. `what` names it in errors.
  void complete(Result result, const char* what, Deadline deadline) const;

  // Throws if an asynchronous operation has failed.
  void check() const;

  // The two ways to end; the communicator is not used afterwards. close() lets pending operations complete, and waits
  // for the other ranks, which also leave; returns false if that is impossible or takes longer:
  bool close(Deadline deadline) noexcept;
  // break_off() then aborts pending operations at once, on this rank.
  void break_off() noexcept;

 private:
  const std::shared_ptr<const Library> library_;
  const AbortFlag& abort_;
  Handle handle_ = nullptr;  // null: ended
};

}  // namespace hvd::nccl
