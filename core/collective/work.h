// What the caller holds of an operation under way: is it done, how did it end, what came out.
//
// Made by Runtime::submit, completed once by the engine thread, waited for by any thread. Results may be read after
// done() returned true.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/futex.h"
#include "core/base/status.h"
#include "core/tensor/owned_tensor.h"

namespace hvd {

class Work {
 public:
  bool done() const { return done_.value.load(std::memory_order_acquire) != 0; }

  // True once done; false at the deadline. Sleeps at once: the engine that it waits for may need this very core.
  bool wait(Deadline deadline);
  // Has anybody begun to wait? What that thread has submitted before is then in the queue. Any thread.
  bool awaited() const { return awaited_.load(std::memory_order_acquire); }
  void set_awaited() { awaited_.store(true, std::memory_order_release); }

  // How it ended. Requires done().
  const Status& status() const { return status_; }

  // Engine thread, once, after the results below are in place.
  void complete(Status status);

  std::vector<OwnedTensor> outputs;           // if the call gave none
  std::vector<std::int64_t> received_splits;  // alltoall: rows by source
  int last_joined = -1;                       // join

 private:
  Signal done_;
  std::atomic<bool> awaited_{false};
  Status status_;
};

}  // namespace hvd
