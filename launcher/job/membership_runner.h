// Runs what only an elastic job has: MembershipRunner performs the decisions of Membership, EarlyEnd ends the job
// early, and ElasticRun keeps it running without what it has lost. Main thread only.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "launcher/job/job_processes.h"
#include "launcher/membership/allocation_end.h"
#include "launcher/membership/elastic_store.h"
#include "launcher/membership/membership.h"
#include "launcher/processes/event_loop.h"
#include "launcher/watch/job_end.h"
#include "launcher/watch/rank_status.h"

namespace hvd::launcher {

// Between two epochs: how long no epoch goes on, and why the last one ended.
class EpochPause {
 public:
  void add_cause(const std::string& cause) { causes_.push_back(cause); }
  // From now on, unless no epoch goes on already.
  void begin() {
    if (!since_) since_ = Clock::now();
  }
  void begin(const std::string& cause) {
    add_cause(cause);
    begin();
  }
  // "0.012", in seconds; and "; rank 1 has failed: ..." for each cause.
  std::string length_text() const;
  std::string causes_text() const;
  void end() { *this = {}; }

 private:
  std::optional<TimePoint> since_;
  std::vector<std::string> causes_;
};

// Performs on hosts and store what Membership decides, and tells the user each change in one line.
class MembershipRunner {
 public:
  // `store` and what `job` refers to outlive it.
  MembershipRunner(const MembershipOptions& options, ElasticStore& store, const JobParts& job);

  // The hosts that the job may use, with their slots; starts processes.
  void set_hosts(const std::vector<HostCount>& hosts);
  void process_ended(int process, const RankEnd& end);
  void process_not_started(int process, const std::string& cause);
  // `had_ranks`: some ran there, so that the loss is a cause of the next epoch.
  void host_lost(const std::string& host, const std::string& cause, bool had_ranks);
  // The host is about to be taken away: its processes leave at the next step boundary.
  void host_preempted(const std::string& host);
  // The job is about to be taken away: it ends at the next step boundary.
  void end_early();
  bool ends_early() const { return membership_.ends_early(); }
  // The job ends for another reason: nothing is started or decided any more.
  void stop() { is_stopped_ = true; }

  std::optional<EpochRank> epoch_rank_of(int process) const;

  bool over() const { return is_stopped_ || membership_.over(); }
  std::optional<Deadline> next_deadline() const { return over() ? std::nullopt : membership_.next_deadline(); }
  void on_time() {
    if (!over()) membership_.time_passed(Clock::now());
    perform();
  }

 private:
  void stands_by(int process);
  void preempted(int process);
  void failing(int process, const std::string& said);
  void arrived(int process, std::int64_t arrival);
  std::string name_of(int process) const;  // "rank 1 on h2" if it was in an epoch
  void perform();
  void perform(const MembershipAction& action);
  void begin_epoch(const BeginEpoch& begin);
  void announce(const AnnounceChange& change);
  void answer(int process, const EpochPlace& place);
  void report_starting();
  std::string line_of(const BeginEpoch& begin, const std::string& joined) const;

  ElasticStore& store_;
  const JobParts job_;
  Membership membership_;
  std::map<int, std::int64_t> arrivals_;  // by process: the last
  std::vector<int> members_;              // of the last epoch, by rank
  int reported_starting_ = 0;             // to the last epoch
  EpochPause pause_;
  std::optional<int> last_failed_;  // since the last epoch has begun, unless a host was lost later
  bool is_stopped_ = false;
  bool is_performing_ = false;
};

// When an elastic job ends before it has finished: a scheduler's notice arrives, its allocation is almost over, or all
// of its hosts are preempted. Its ranks save their state at the next commit and leave; if none comes within a limit,
// the job ends as if by SIGTERM.
class EarlyEnd {
 public:
  struct Options {
    Duration margin{};  // how long before its allocation the job ends; 0: never
    Duration limit{};   // for the next commit, unless SIGTERM asks for it
    bool verbose = false;
  };

  // `runner` and what `job` refers to outlive this.
  EarlyEnd(Options options, MembershipRunner& runner, EventLoop& loop, const SignalSource& signals,
           const JobParts& job);

  // Returns whether the signal is a notice that the job is about to be ended, which begins the early end.
  bool take_notice(int signal);
  void begin(const std::string& cause) { begin(cause, options_.limit); }

  std::optional<Deadline> next_deadline() const { return earlier(time_limit_, commit_limit_); }
  void check_time(TimePoint now);

  // Called after SIGCHLD, for any child.
  void child_ended(pid_t pid, ExitStatus status) {
    if (allocation_) allocation_->child_ended(pid, status);
  }

 private:
  void begin(const std::string& cause, Duration limit);
  void watch_allocation(EventLoop& loop, const SignalSource& signals);
  void set_time_limit(std::optional<TimePoint> limit, bool has_changed);

  const Options options_;
  MembershipRunner& runner_;
  const JobParts job_;
  std::optional<Deadline> time_limit_;    // of the job, before its allocation ends; empty once it is reached
  std::optional<Deadline> commit_limit_;  // of the wait for the next commit
  std::optional<TimePoint> first_sigterm_;
  std::unique_ptr<AllocationEnd> allocation_;  // null: the job is in none
};

// The epochs of a running job, and what its events mean for them: the end of a process or the loss of a host does not
// end the job, which starts processes and servers in their place.
class ElasticRun {
 public:
  // `store` and what `job` refers to outlive it.
  ElasticRun(const MembershipOptions& options, EarlyEnd::Options early_end, ElasticStore& store, EventLoop& loop,
             const SignalSource& signals, const JobParts& job)
      : job_(job), runner_(options, store, job), early_end_(early_end, runner_, loop, signals, job) {}

  // Which hosts may be used now, with their slots; at first all that the job has.
  void use_hosts(const std::vector<HostCount>& hosts);
  void use_all_hosts();

  // False once the job has ended, or stop() has said that it ends for a reason that the epochs do not decide on.
  bool goes_on() const { return !runner_.over(); }
  void stop() { runner_.stop(); }
  MembershipRunner& runner() { return runner_; }
  EarlyEnd& early_end() { return early_end_; }
  std::optional<Deadline> next_deadline() const { return earlier(runner_.next_deadline(), early_end_.next_deadline()); }

  // Events, while the job goes on; process_not_started() also later.
  void process_ended(int process, ExitStatus status, const JobEnding& said);
  void process_not_started(int process, const std::string& cause, int exit_code);
  void host_lost(int host, const LostHost& lost);
  void host_preempted(int host);

 private:
  const JobParts job_;
  MembershipRunner runner_;
  EarlyEnd early_end_;
};

}  // namespace hvd::launcher
