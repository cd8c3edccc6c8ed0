// The coordinator thread of this process ("hvd-engine"): takes submissions, negotiates, performs what was agreed.
//
// Event driven: it sleeps until somebody submits, a message arrives or a stall is due to be reported. It owns the
// pending table, the negotiator and the executor; other threads reach it through the SubmissionQueue, wake() and
// leave() only. When the run ends, well or badly, every work that is still open is completed with the reason.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "core/base/abort_flag.h"
#include "core/base/log.h"
#include "core/base/metrics.h"
#include "core/config.h"
#include "core/execution/executor.h"
#include "core/negotiation/control_channel.h"
#include "core/negotiation/negotiator.h"
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
    FlightNames& names;
    Metrics& metrics;
    Timeline& timeline;
    const ProcessSet& global_set;
  };

  // Starts the thread.
  Engine(const Parts& parts, std::unique_ptr<Executor> executor);
  // leave(), then waits for the thread.
  ~Engine();

  // Any thread. Not ok once the run has ended: the reason.
  Status submit(Submission& submission);

  // Any thread: asks the other ranks to end the run, and this thread to end when they know.
  void leave();
  // Any thread: waits until the run has ended.
  void join();
  // After join(): whether all ranks know that the run has ended, because they agreed to end it or because it was given
  // up. Not so if the coordinator did not answer this rank's leave.
  bool all_know() const { return agreed_to_end_ || parts_.abort.raised(); }

 private:
  void run();
  void run_round();
  bool take_submissions();
  void apply(CoordinatorMessage message);
  void perform(std::vector<std::shared_ptr<const Response>>& executes);
  void finish(const Response& response);
  Status verdict(const Status& own);
  void end(const Status& reason);
  Status reason() const;

  const Parts parts_;
  Negotiator negotiator_;
  std::unique_ptr<Executor> executor_;  // engine thread only, as all below but the queue
  PendingTable pending_;
  bool left_ = false;                          // the coordinator was told that this rank leaves,
  Deadline leave_deadline_ = Deadline::max();  // and has until then to acknowledge
  bool agreed_to_end_ = false;
  bool ended_ = false;

  SubmissionQueue queue_;
  std::atomic<bool> leaving_{false};
  mutable std::mutex reason_mutex_;
  Status reason_;  // guarded by reason_mutex_
  std::thread thread_;
};

}  // namespace hvd
