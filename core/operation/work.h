// The completion of an operation: whether it is done, its status and its results.
//
// Completed once by the engine thread; any thread may wait for it. Results may be read after done() has returned true;
// on a device done() means that the operation has been enqueued in a stream, and on_device reports its end.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/base/clock.h"
#include "core/base/status.h"
#include "core/device/device_completion.h"
#include "core/tensor/tensor.h"

namespace hvd {

class Work {
 public:
  bool done() const { return state_.load(std::memory_order_acquire) == kDone; }

  // True once done; false at the deadline. Sleeps at once: the engine that it waits for may need this very core.
  bool wait(Deadline deadline);
  // Whether a thread has begun to wait. What that thread has submitted before is in the queue then. Any thread.
  bool awaited() const { return awaited_.load(std::memory_order_acquire); }
  void set_awaited() { awaited_.store(true, std::memory_order_release); }

  // Instead of waiting: calls `callback(context)` once when done, on the engine thread after its last change to this
  // object, or at once on this thread if it is done already. The callback must not block. At most one call.
  void call_when_done(void (*callback)(void*), void* context);

  // The outcome. Requires done().
  const Status& status() const { return status_; }

  // The same including work on a device. Any thread.
  bool over() const { return done() && (!on_device || on_device->done()); }
  bool wait_until_over(Deadline deadline) { return wait(deadline) && (!on_device || on_device->wait(deadline)); }
  Status outcome() const { return status_.ok() && on_device ? on_device->status() : status_; }

  // Engine thread, once, after the results below are in place. True if a thread sleeps or a callback is set, and wake()
  // must be called: so a thread that waits for many works is woken when all are done.
  [[nodiscard]] bool complete(const Status& status);
  void wake();

  // Resets to the initial state. No thread may be waiting.
  void reset();

  std::vector<OwnedTensor> outputs;             // if the caller gave none
  std::vector<std::int64_t> received_splits;    // alltoall: rows by source
  int last_joined = -1;                         // join
  int source = -1;                              // of a receive: the job rank that sent the message
  std::shared_ptr<DeviceCompletion> on_device;  // null: nothing is on a device

 private:
  static constexpr std::uint32_t kOpen = 0, kSleptOn = 1, kDone = 2, kToCall = 3;

  std::atomic<std::uint32_t> state_{kOpen};
  std::atomic<bool> awaited_{false};
  void (*callback_)(void*) = nullptr;  // set before state_ is kToCall
  void* callback_context_ = nullptr;
  bool is_to_call_ = false;  // owned by the engine thread, from complete() to wake()
  Status status_;
};

}  // namespace hvd
