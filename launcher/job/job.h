// Runs one job in hvdrun: shows the output of its ranks, forwards hvdrun's signals to them, and ends all of them
// together, on whichever hosts they run. Main thread only, in one event loop. Decisions are made by pure classes
// (JobEnd, Membership); the Host implementations start and signal the ranks. ElasticRun handles what differs in an
// elastic job.
#pragma once

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "launcher/job/host.h"
#include "launcher/job/job_output.h"
#include "launcher/job/job_processes.h"
#include "launcher/job/job_report.h"
#include "launcher/job/job_status.h"
#include "launcher/job/membership_runner.h"
#include "launcher/output/rank_pipes.h"
#include "launcher/processes/event_loop.h"
#include "launcher/watch/job_end.h"

namespace hvd::launcher {

// What the command line says about a running job.
struct JobOptions {
  OutputOptions output;
  int servers = 0;  // parameter servers beside the ranks
  bool report_bindings = false;
  bool verbose = false;
  std::optional<Duration> timeout;
  Duration grace{};                            // from the first failure to SIGTERM
  std::optional<MembershipOptions> elastic{};  // empty: the ranks stay the same
  Duration stopped_limit{};                    // of an elastic job: a process that is stopped for longer is killed
  Duration time_limit_margin{};                // of an elastic job: see EarlyEnd
  std::string preemption_script;               // of an elastic job: see HostPlan
  bool operator==(const JobOptions&) const = default;
};

// Where the ranks of a job run. In an elastic job the ranks of a host's plan are its slots, and its servers those that
// it might have: all of the job.
struct JobHosts {
  std::vector<HostPlan> plans;
  std::vector<std::unique_ptr<Host>> hosts;  // one per plan
  bool feeds_input = false;                  // ranks that read hvdrun's standard input have not inherited it
  std::function<void()> collect_children;    // called after SIGCHLD
  std::function<void(bool on)> pause;        // called before hvdrun stops itself (Ctrl-Z), and when it continues
  // Reports the first failure to ranks that are in rendezvous.
  std::function<void(const std::string& cause)> set_failure;
  ElasticStore* elastic_store = nullptr;  // of an elastic job
};

class Job : public HostListener {
 public:
  // `size`: the number of ranks; of an elastic job, the most that there can be at a time.
  Job(JobOptions options, int size, EventLoop& loop, SignalSource& signals);
  ~Job() override;

  // In an elastic job, while it runs: a further host, whose plan's ranks are its slots, and the hosts that may be used
  // now.
  int next_host() const;
  void add_host(HostPlan plan, std::unique_ptr<Host> host);
  // Of an elastic job's host, for the processes that are started from now on.
  void set_slots(int host, std::vector<RankPlan> slots);
  void use_hosts(const std::vector<HostCount>& hosts);

  // Returns hvdrun's exit code when no process is left. Throws Error if the output directory cannot be written.
  int run(JobHosts hosts);

  // Called after SIGCHLD, for a child that is not one of the hosts' processes.
  void child_ended(pid_t pid, ExitStatus status);

  void rank_started(int rank, pid_t pid) override;
  void rank_not_started(int rank, const std::string& cause, int exit_code) override;
  void rank_wrote(int rank, Stream stream, std::string_view bytes) override;
  void input_consumed(int rank) override;
  void rank_ended(int rank, ExitStatus status, const JobEnding& said) override;
  void nothing_left(int host) override;
  void host_lost(int host, const std::string& cause) override;
  void host_preempted(int host) override;
  void warning(const std::string& line) override;
  void statuses(int host, std::uint64_t query_id, std::vector<RankStatus> statuses) override;
  void initialized(int host) override;
  void stalled(int host, bool on) override;

 private:
  // Waits for events until the next deadline, and does what is due.
  void step();
  void send_due_signal();
  void on_signals();
  // Whether the job is elastic and goes on without what it loses.
  bool goes_on() const;
  // No process is left, and all that the ranks have written is read.
  bool is_over() const;

  const JobOptions options_;
  EventLoop& loop_;
  SignalSource& signals_;
  const int size_;
  const TimePoint start_ = Clock::now();
  std::optional<Deadline> timeout_;  // empty once it is reached
  JobEnd end_;
  JobOutput output_;
  JobProcesses processes_;
  JobServers servers_;
  JobHosts hosts_;                       // its plans and hosts are in processes_
  std::unique_ptr<ElasticRun> elastic_;  // null: the ranks stay the same
  std::unique_ptr<InputFeed> input_;
  std::optional<JobStatus> status_;
  std::optional<JobReport> report_;
  int started_ = 0, ended_ = 0;  // numbers of ranks
  std::set<int> initialized_hosts_;
  bool impatient_ = false;  // the user has interrupted the wait for the remaining output
};

}  // namespace hvd::launcher
