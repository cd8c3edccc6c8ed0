// Takes submissions, negotiates, performs what was agreed; or, while steps repeat, performs what the locked schedule
// says (schedule_lock.h).
//
// Event driven. One thread at a time drives it: as a rule its own ("hvd-engine"), which sleeps until somebody submits,
// a message arrives or a stall is due to be reported; or a caller that waits for its operation anyway (run()), if
// nobody else does, which saves handing the operation over and the result back. Whoever drives holds driver_, and with
// it the pending table, the negotiator, the lock and the executor; others reach them through the SubmissionQueue and
// leave(). When the run ends, well or badly, every work that is still open is completed with the reason.
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
#include "core/engine/tuner.h"
#include "core/execution/executor.h"
#include "core/flight/flight_recorder.h"
#include "core/fusion/stage_planner.h"
#include "core/negotiation/control_channel.h"
#include "core/negotiation/negotiator.h"
#include "core/negotiation/schedule_lock.h"
#include "core/submission/named_submissions.h"
#include "core/submission/pending_table.h"
#include "core/submission/submission_queue.h"

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
    std::function<void(const Status& reason)> on_end = {};  // told when the run ends, by whoever drives then; is quick
  };

  // Starts the thread.
  Engine(const Parts& parts, std::unique_ptr<Executor> executor);
  // leave(), then waits for the thread.
  ~Engine();

  // Any thread, one at a time (Communicator::submitting). Not ok once the run has ended: the reason.
  Status submit(EnginesSubmission& submission);

  // Any thread: performs the submission on this thread, with whatever else becomes ready meanwhile; returns when its
  // work is done, or soon after the deadline. False if another thread drives just now, or the run has ended: nothing
  // has happened then. Otherwise unlocks `submitting`, under which submissions are put into their order, once this one
  // has its place.
  bool run(EnginesSubmission& submission, std::unique_lock<std::mutex>& submitting, Deadline deadline);

  // Any thread: the same without a submission, if the locked schedule wants exactly this operation next; false if not.
  // Nothing is made and looked up then: a few tens of nanoseconds beside the collective itself.
  bool run(const DirectCall& direct);

  // Any thread: asks the other ranks to end the run, and this thread to end when they know.
  void leave();
  // Any thread: waits until the run has ended.
  void join();
  // After join(): whether all ranks know that the run has ended, because they agreed to end it or because it was given
  // up. Not so if the coordinator did not answer this rank's leave.
  bool all_know() const { return agreed_to_end_ || parts_.abort.raised(); }

 private:
  // What to wait for until the next round.
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

  std::mutex driver_;  // guards all but the queue and what has a guard of its own
  Negotiator negotiator_;
  std::unique_ptr<Executor> executor_;
  Knobs knobs_;                   // in use
  std::unique_ptr<Tuner> tuner_;  // until it has finished
  PendingTable pending_;
  ScheduleLock lock_;
  std::vector<std::shared_ptr<const Response>> scheduled_;  // what stages_ points into
  std::vector<Stage> stages_;
  std::vector<PreparedCall> prepared_;  // for each stage
  std::uint64_t unnamed_since_ = 0;     // NamedSubmissions::changes_of_numbers() at the lock
  std::string unnamed_;                 // name_of_synchronous() then
  unsigned direct_calls_ = 0;
  bool stalled_ = false;  // as the flight recorder says,
  std::uint64_t operations_at_stall_ = 0;
  bool caller_drives_ = false;
  const Work* callers_work_ = nullptr;         // what it waits for, if that is a submission
  int late_calls_ = 0;                         // in the stage under way,
  const int most_late_calls_;                  // of the engine's thread
  std::optional<TimePoint> blocked_since_;     // locked, with something pending and nothing to do
  bool left_ = false;                          // the coordinator was told that this rank leaves,
  Deadline leave_deadline_ = Deadline::max();  // and has until then to acknowledge
  bool agreed_to_end_ = false;
  bool ended_ = false;

  AdaptiveWait caller_wait_;  // of callers that drive
  AdaptiveWait thread_wait_;  // the engine's thread alone

  // Operations so far, each counted by one thread at a time: under Communicator::submitting, and under driver_.
  std::atomic<std::uint64_t> submitted_{0}, performed_directly_{0};

  SubmissionQueue queue_;
  std::vector<EnginesSubmission> taken_;  // from the queue, and then
  std::vector<Submission*> filed_;        // in the table
  // So many submissions in the queue end the pause; 0: it was ended already.
  std::atomic<std::size_t> wake_at_{1};
  std::atomic<bool> leaving_{false};
  mutable std::mutex reason_mutex_;
  Status reason_;  // guarded by reason_mutex_
  std::thread thread_;
};

}  // namespace hvd
