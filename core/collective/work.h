// What becomes of an operation under way: is it done, how did it end, what came out.
//
// Completed once by the engine thread, waited for by any thread. Results may be read after done() returned true; on a
// device done() means that the operation is in a stream there, and on_device says when it is over.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/base/clock.h"
#include "core/base/status.h"
#include "core/device/device_completion.h"
#include "core/tensor/owned_tensor.h"

namespace hvd {

class Work {
 public:
  bool done() const { return state_.load(std::memory_order_acquire) == kDone; }

  // True once done; false at the deadline. Sleeps at once: the engine that it waits for may need this very core.
  bool wait(Deadline deadline);
  // Has anybody begun to wait? What that thread has submitted before is then in the queue. Any thread.
  bool awaited() const { return awaited_.load(std::memory_order_acquire); }
  void set_awaited() { awaited_.store(true, std::memory_order_release); }

  // Instead of waiting: has `callback(context)` called once when done, on the engine's thread after this object's last
  // change there, or at once on this one if it is done already. The callback must not wait for anything. Once.
  void call_when_done(void (*callback)(void*), void* context);

  // How it ended. Requires done().
  const Status& status() const { return status_; }

  // The same of what goes on on a device, too. Any thread.
  bool over() const { return done() && (!on_device || on_device->done()); }
  bool wait_until_over(Deadline deadline) { return wait(deadline) && (!on_device || on_device->wait(deadline)); }
  Status outcome() const { return status_.ok() && on_device ? on_device->status() : status_; }

  // Engine thread, once, after the results below are in place. True if somebody sleeps or is to be called, whom wake()
  // is to tell: so that one who waits for many is woken when all are done.
  [[nodiscard]] bool complete(const Status& status);
  void wake();

  // As new. Nobody waits any more.
  void reset();

  std::vector<OwnedTensor> outputs;             // if the call gave none
  std::vector<std::int64_t> received_splits;    // alltoall: rows by source
  int last_joined = -1;                         // join
  int source = -1;                              // of a receive: the rank of the job that the message came from
  std::shared_ptr<DeviceCompletion> on_device;  // null: nothing is on a device

 private:
  static constexpr std::uint32_t kOpen = 0, kSleptOn = 1, kDone = 2, kToCall = 3;

  std::atomic<std::uint32_t> state_{kOpen};
  std::atomic<bool> awaited_{false};
  void (*callback_)(void*) = nullptr;  // set before state_ is kToCall
  void* callback_context_ = nullptr;
  bool is_to_call_ = false;  // the engine's, from complete() to wake()
  Status status_;
};

}  // namespace hvd
