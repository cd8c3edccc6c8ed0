// The engine of one process set: takes submissions, negotiates, and performs what the ranks have agreed on; or, while
// steps repeat, performs the locked schedule (schedule_lock.h).
//
// Event driven. One thread at a time drives it: usually its own ("hvd-engine"), which sleeps until an operation is
// submitted, a message arrives or a stall is to be reported; or a caller that waits for its operation anyway (run()),
// if no other thread drives, which saves handing over the operation and the result. The driving thread holds driver_,
// and thereby owns the pending table, the negotiator, the lock and the executor; other threads use the SubmissionQueue
// and leave(). When the run ends, in order or not, every open work is completed with the reason.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "core/base/abort_flag.h"
#include "core/base/log.h"
#include "core/base/metrics.h"
#include "core/config.h"
#include "core/control/negotiator.h"
#include "core/control/schedule/schedule_lock.h"
#include "core/control/tree/control_channel.h"
#include "core/engine/tuner.h"
#include "core/execution/executor.h"
#include "core/execution/stage_planner.h"
#include "core/flight/flight_recorder.h"
#include "core/operation/named_submissions.h"
#include "core/operation/pending_table.h"
#include "core/operation/submission_queue.h"

namespace hvd {

class Engine {
 public:
  struct Parts {  // all but the executor outlive the engine
    const Topology& topology;
    const Config& config;
    const Log& log;
    AbortFlag& abort;
    ControlChannel& channel;
    NamedSubmissions& names;
    Metrics& metrics;
    Timeline& timeline;
    FlightRecorder& flight;
    const ProcessSet& set;                                  // all ranks of the topology
    std::function<void(const Status& reason)> on_end = {};  // when the run ends, on the driving thread; must be quick
  };

  // Starts the thread.
  Engine(const Parts& parts, std::unique_ptr<Executor> executor);
  // leave(), then waits for the thread.
  ~Engine();

  // Any thread, one at a time (Communicator::submitting). If the run has ended, returns the reason.
  Status submit(EnginesSubmission& submission);

  // Any thread: performs the submission on this thread, with whatever else becomes ready meanwhile; returns when its
  // work is done, or soon after the deadline. False, without effect, if another thread drives or the run has ended.
  // Otherwise unlocks `submitting`, the lock that orders submissions, once this submission has its place in the order.
  bool run(EnginesSubmission& submission, std::unique_lock<std::mutex>& submitting, Deadline deadline);

  // Any thread: the same without a submission, if the locked schedule expects exactly this operation next; else false.
  // Nothing is allocated or looked up: costs a few tens of nanoseconds in addition to the collective.
  bool run(const DirectCall& direct);

  // Any thread: asks the other ranks to end the run, and the engine thread to end once they know.
  void leave();
  // Any thread: waits until the run has ended.
  void join();
  // After join(): whether all ranks know that the run has ended, because they agreed to end it or because it was
  // aborted. False if the coordinator did not acknowledge this rank's leave.
  bool all_know() const { return agreed_to_end_ || parts_.abort.raised(); }

 private:
  // What to wait for before the next iteration.
  struct Pause {
    std::uint32_t heard = 0;
    Deadline deadline = Deadline::max();
    bool eager = false;
  };

  void run_thread();
  bool drive(const auto& body);
  std::optional<Pause> run_iteration();
  bool may_pause();
  Submission& insert(EnginesSubmission submission);
  bool take_submissions();
  void file(const std::vector<Submission*>& submissions);
  void announce(const std::vector<const Request*>& requests);
  void apply(CoordinatorMessage message);
  void perform(std::vector<std::shared_ptr<const Response>>& executes);
  void tune(const std::vector<std::shared_ptr<const Response>>& executed);

  // The locked schedule.
  void lock(const Schedule& schedule, std::uint64_t epoch);
  void file_in_schedule(Submission& submission);
  void show_state();
  bool follow_schedule();
  bool perform_stage(const Stage& stage);
  void perform_directly(std::size_t stage, const DirectCall& direct);
  bool means(const DirectCall& direct, const PreparedCall& prepared) const;
  void break_up(ScheduleLock::Cause cause);
  void leave_schedule();
  bool awaited() const;
  bool wait_on();
  Deadline look_for_blocked_callers(bool awaited);
  bool waits_for_answers() const;
  Deadline look_for_answer() const;

  void finish(const Response& response);
  void record(Submission& submission);
  void show_recovery();
  Status verdict(const Status& own);
  void end(const Status& reason);
  void record_end(const Status& reason);
  Status reason() const;

  const Parts parts_;

  std::mutex driver_;  // guards everything except the queue and members with a guard of their own
  Negotiator negotiator_;
  std::unique_ptr<Executor> executor_;
  Knobs knobs_;                   // in use now
  std::unique_ptr<Tuner> tuner_;  // until it has finished
  PendingTable pending_;
  ScheduleLock lock_;
  std::vector<std::shared_ptr<const Response>> scheduled_;  // the responses that stages_ points into
  std::vector<Stage> stages_;
  std::vector<PreparedCall> prepared_;  // for each stage
  std::uint64_t unnamed_since_ = 0;     // NamedSubmissions::changes_of_numbers() at the lock
  std::string unnamed_;                 // name_of_synchronous() then
  unsigned direct_calls_ = 0;
  bool stalled_ = false;  // the state in the flight recorder
  std::uint64_t operations_at_stall_ = 0;
  bool caller_drives_ = false;
  const Work* callers_work_ = nullptr;         // the work that the driving caller waits for, if it is a submission
  int late_calls_ = 0;                         // of the stage in progress
  const int most_late_calls_;                  // for the engine thread
  std::optional<TimePoint> blocked_since_;     // while locked, with something pending and nothing to perform
  bool left_ = false;                          // this rank has announced its leave to the coordinator
  Deadline leave_deadline_ = Deadline::max();  // for the acknowledgement
  bool agreed_to_end_ = false;
  bool ended_ = false;

  AdaptiveWait caller_wait_;  // of driving callers
  AdaptiveWait thread_wait_;  // of the engine thread

  // Operations so far, each counter written by one thread at a time: under Communicator::submitting, and under driver_.
  std::atomic<std::uint64_t> submitted_{0}, performed_directly_{0};

  SubmissionQueue queue_;
  std::vector<EnginesSubmission> taken_;  // submissions taken from the queue
  std::vector<Submission*> filed_;        // the same, in the pending table
  // The number of submissions in the queue that ends the pause; 0: it has been ended already.
  std::atomic<std::size_t> wake_at_{1};
  std::atomic<bool> leaving_{false};
  mutable std::mutex reason_mutex_;
  Status reason_;  // guarded by reason_mutex_
  std::thread thread_;
};

}  // namespace hvd
