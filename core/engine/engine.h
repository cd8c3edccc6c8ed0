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
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "core/base/mutex.h"
#include "core/engine/engine_context.h"
#include "core/engine/negotiated_runner.h"
#include "core/engine/schedule_runner.h"

namespace hvd {

class Engine {
 public:
  // Starts the thread.
  Engine(const EngineDependencies& dependencies, std::unique_ptr<Executor> executor);
  // leave(), then waits for the thread.
  ~Engine();

  // Any thread, one at a time (Communicator::submitting_). If the run has ended, returns the reason.
  Status submit(EngineReference& operation);

  // submit() for a caller that waits: if no other thread drives, performs the operations on this one, with whatever
  // else becomes ready meanwhile, and returns when they are done, or soon after the deadline. It unlocks `submitting`,
  // the caller's lock, once the operations are in order, before it waits; if another thread drives, it stays locked.
  Status run(std::span<EngineReference> operations, MutexLock& submitting, Deadline deadline);

  // Any thread: performs the call on the caller's memory without an operation, if the locked schedule expects exactly
  // this next; else false. Nothing is allocated or looked up: costs a few tens of nanoseconds in addition to the
  // collective. Throws Unsupported or Mismatch if the call has ended with that on every rank; the run goes on.
  bool run(const Call& call);
  // The same for a prepared operation that is not under way.
  bool run(Operation& operation);

  // Any thread: posts a prepared operation that is not under way, and returns at once, if the locked schedule expects
  // exactly this next and the backend can do its own part without waiting; else false, without effect. Its caller later
  // either waits, which wait_posted() precedes, or has the engine thread end it by hand_to_engine(). `timeout`: for how
  // long the caller is going to wait.
  bool post(Operation& operation);
  void wait_posted(Operation& operation, Duration timeout);
  void hand_to_engine(Operation& operation);

  // Any thread: asks the other ranks to end the run, and the engine thread to end once they know.
  void leave();
  // Any thread: waits until the run has ended.
  void join();
  // After join(): whether all ranks know that the run has ended, because they agreed to end it or because it was
  // aborted. False if the coordinator did not acknowledge this rank's leave.
  bool all_know() const NO_THREAD_SAFETY_ANALYSIS;

 private:
  // What to wait for before the next iteration.
  struct Pause {
    std::uint32_t doorbell_seen = 0;
    Deadline deadline = Deadline::max();
    bool eager = false;
  };

  // Constant, except the submission counter, which the submitting thread owns.
  const EngineDependencies& dependencies() const NO_THREAD_SAFETY_ANALYSIS;
  OperationRecorder& recorder() NO_THREAD_SAFETY_ANALYSIS;

  DirectCall* direct_for(auto& asked) REQUIRES(driver_);
  bool run_directly(auto& asked, const auto& memory_of) NO_THREAD_SAFETY_ANALYSIS;
  void run_thread();
  bool drive(const auto& body) REQUIRES(driver_) NO_THREAD_SAFETY_ANALYSIS;
  void drive_until_done(std::span<EngineReference> operations, MutexLock& submitting, Deadline deadline)
      REQUIRES(driver_);
  std::optional<Pause> run_iteration() REQUIRES(driver_);
  bool ends() REQUIRES(driver_);
  bool may_pause() REQUIRES(driver_);
  bool take_operations() REQUIRES(driver_);
  void end(const Status& reason) REQUIRES(driver_);
  Status reason() const;

  Mutex driver_;  // held by the thread that drives
  EngineContext context_ GUARDED_BY(driver_);
  ScheduleRunner schedule_ GUARDED_BY(driver_);
  NegotiatedRunner negotiated_ GUARDED_BY(driver_);
  const Completion* awaited_ GUARDED_BY(driver_) = nullptr;  // what the driving caller waits for, if any
  bool ended_ GUARDED_BY(driver_) = false;

  AdaptiveWait caller_wait_ GUARDED_BY(driver_);  // of driving callers
  AdaptiveWait thread_wait_;                      // of the engine thread

  OperationQueue queue_;
  std::vector<EngineReference> taken_ GUARDED_BY(driver_);  // operations taken from the queue
  std::vector<Operation*> dispatched_ GUARDED_BY(driver_);  // the same, once pending
  std::vector<Operation*> driven_ GUARDED_BY(driver_);      // those that the driving caller waits for
  // The number of operations in the queue that ends the pause; 0: it has been ended already.
  std::atomic<std::size_t> wake_at_{1};
  std::atomic<bool> leaving_{false};
  mutable Mutex reason_mutex_ ACQUIRED_AFTER(driver_);
  Status reason_ GUARDED_BY(reason_mutex_);
  std::atomic<std::thread::id> driving_thread_{};  // while it drives; callbacks of operations may call post()
  std::thread thread_;
};

}  // namespace hvd
