// The engine of one process set: takes operations, negotiates, and performs what the ranks have agreed on
// (negotiated_runner.h); or, while steps repeat, performs the locked schedule (schedule_runner.h).
//
// Event driven. One thread at a time drives it: usually its own ("hvd-engine"), which sleeps until an operation is
// submitted, a message arrives or a stall is to be reported; or a caller that waits for its operation anyway (run()),
// if no other thread drives, which saves handing over the operation and the result. The driving thread holds driver_,
// and thereby owns the context and the runners; other threads use the OperationQueue and leave(). When the run ends, in
// order or not, every open operation is completed with the reason.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "core/engine/engine_context.h"
#include "core/engine/negotiated_runner.h"
#include "core/engine/schedule_runner.h"

namespace hvd {

class Engine {
 public:
  // Starts the thread.
  Engine(const EngineParts& parts, std::unique_ptr<Executor> executor);
  // leave(), then waits for the thread.
  ~Engine();

  // Any thread, one at a time (Communicator::submitting_). If the run has ended, returns the reason.
  Status submit(EngineReference& operation);

  // Any thread: performs the operation on this thread, with whatever else becomes ready meanwhile; returns when it is
  // done, or soon after the deadline. False, without effect, if another thread drives or the run has ended. Otherwise
  // unlocks `submitting`, the lock that orders submissions, once this operation has its place in the order.
  bool run(EngineReference& operation, std::unique_lock<std::mutex>& submitting, Deadline deadline);

  // Any thread: performs the call on the caller's memory without an operation, if the locked schedule expects exactly
  // this next; else false. Nothing is allocated or looked up: costs a few tens of nanoseconds in addition to the
  // collective. Throws Unsupported or Mismatch if the call has ended with that on every rank; the run goes on.
  bool run(const Call& call);

  // Any thread: asks the other ranks to end the run, and the engine thread to end once they know.
  void leave();
  // Any thread: waits until the run has ended.
  void join();
  // After join(): whether all ranks know that the run has ended, because they agreed to end it or because it was
  // aborted. False if the coordinator did not acknowledge this rank's leave.
  bool all_know() const { return negotiated_.agreed_to_end() || parts().abort.raised(); }

 private:
  // What to wait for before the next iteration.
  struct Pause {
    std::uint32_t heard = 0;
    Deadline deadline = Deadline::max();
    bool eager = false;
  };

  const EngineParts& parts() const { return context_.parts; }
  void run_thread();
  bool drive(const auto& body);
  std::optional<Pause> run_iteration();
  bool ends();
  bool may_pause();
  bool take_operations();
  Status verdict(const Status& own);
  void end(const Status& reason);
  void record_end(const Status& reason);
  Status reason() const;

  std::mutex driver_;  // guards everything except the queue and members with a guard of their own
  EngineContext context_;
  ScheduleRunner schedule_;
  NegotiatedRunner negotiated_;
  const Completion* awaited_ = nullptr;  // what the driving caller waits for, if it is an operation
  bool ended_ = false;

  AdaptiveWait caller_wait_;  // of driving callers
  AdaptiveWait thread_wait_;  // of the engine thread

  OperationQueue queue_;
  std::vector<EngineReference> taken_;  // operations taken from the queue
  std::vector<Operation*> filed_;       // the same, once pending
  // The number of operations in the queue that ends the pause; 0: it has been ended already.
  std::atomic<std::size_t> wake_at_{1};
  std::atomic<bool> leaving_{false};
  mutable std::mutex reason_mutex_;
  Status reason_;  // guarded by reason_mutex_
  std::thread thread_;
};

}  // namespace hvd
