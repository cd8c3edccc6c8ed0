// An NCCL communicator of this rank's GPU, made without blocking: no call of NCCL's waits for another rank, and who has
// to wait asks again and again, with a deadline and an eye on the AbortFlag. (NCCL then starts each group of calls on a
// thread of its own, which costs some tens of microseconds: the price for being able to give up.)
//
// Owned and used by one backend, that is by whoever drives the engine; nobody else calls NCCL for it. The device's
// context is to be current in all functions.
#pragma once

#include <memory>

#include "core/base/abort_flag.h"
#include "core/base/clock.h"
#include "ops/nccl/library.h"

namespace hvd::nccl {

class NcclCommunicator {
 public:
  // All ranks construct together, with rank 0's id; returns when all have. Throws Timeout, the AbortFlag's reason, or
  // what Library::check throws.
  NcclCommunicator(std::shared_ptr<const Library> library, const UniqueId& id, int rank, int size,
                   const AbortFlag& abort, Deadline deadline);
  ~NcclCommunicator() { break_off(); }
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  Handle handle() const { return handle_; }
  const Library& library() const { return *library_; }
  const Table& call() const { return library_->call(); }

  // Throws if `result` is a failure; waits until the communicator is through with it. `what` stands in the errors.
  void complete(Result result, const char* what, Deadline deadline) const;

  // Throws if something has failed in the meantime.
  void check() const;

  // The two ends; the communicator is not used again. Lets what is under way come to its end, and the other ranks,
  // which leave as well, come as far; false if that cannot be, or takes longer:
  bool close(Deadline deadline) noexcept;
  // then what is under way is to be ended at once, on this rank.
  void break_off() noexcept;

 private:
  const std::shared_ptr<const Library> library_;
  const AbortFlag& abort_;
  Handle handle_ = nullptr;  // null: there is none any more
};

}  // namespace hvd::nccl
