// Runs one job in hvdrun: shows the output of its ranks, forwards hvdrun's signals to them, and ends all of them
// together, on whichever hosts they run. Main thread only, in one event loop. Decisions are made by pure classes
// (JobEnd, reports); the Host implementations start and signal the ranks.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <csignal>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "launcher/job/epochs.h"
#include "launcher/job/host.h"
#include "launcher/job/job_output.h"
#include "launcher/job/job_status.h"
#include "launcher/membership/allocation_end.h"
#include "launcher/membership/server_places.h"
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
  Duration time_limit_margin{};                // of an elastic job: how long before its allocation it ends; 0: never
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
  ~Job() override { loop_.forget(signals_.fd()); }

  // In an elastic job, while it runs: a further host, whose plan's ranks are its slots, and the hosts that may be used
  // now.
  int next_host() const { return static_cast<int>(hosts_.hosts.size()); }
  void add_host(HostPlan plan, std::unique_ptr<Host> host);
  void use_hosts(const std::vector<HostCount>& hosts);

  // Returns hvdrun's exit code when no process is left. Throws Error if the output directory cannot be written.
  int run(JobHosts hosts);

  // Called after SIGCHLD, for a child that is not one of the hosts' processes.
  void child_ended(pid_t pid, ExitStatus status);

  void rank_started(int rank, pid_t pid) override;
  void rank_not_started(int rank, const std::string& cause, int exit_code) override;
  void rank_wrote(int rank, Stream stream, std::string_view bytes) override { output_.wrote(rank, stream, bytes); }
  void input_taken(int rank) override {
    if (input_) input_->taken(rank);
  }
  void rank_ended(int rank, ExitStatus status, const JobEnding& said) override;
  void nothing_left(int host) override {
    // An agent may have said so before it was told to start a server again.
    const auto is_there = [&](int server) { return rank_at(server).host == host; };
    if (std::ranges::any_of(running_servers_, is_there)) return;
    if (ended_hosts_.insert(host).second) --hosts_left_;
  }
  void host_lost(int host, const std::string& cause) override;
  void host_preempted(int host) override;
  void complaint(const std::string& line) override { output_.say(line); }
  void statuses(int host, std::uint64_t question, std::vector<RankStatus> statuses) override {
    status_->queries().answered(host, question, std::move(statuses));
  }
  void initialized(int host) override {
    if (epochs_) return;  // they meet again and again
    const bool is_new = initialized_hosts_.insert(host).second;
    const auto with_ranks =
        std::ranges::count_if(hosts_.plans, [](const HostPlan& plan) { return !plan.ranks.empty(); });
    if (is_new && std::ssize(initialized_hosts_) == with_ranks) say_age("all ranks have met in init");
  }
  void stalled(int host, bool on) override { status_->stalled(host, on, end_.next_deadline().has_value()); }

 private:
  struct Rank {
    int host = 0;
    std::string host_name;  // empty: the job has only one host
    std::string name;       // "rank 3 on h2"
    pid_t pid = -1;
    Duration age{};  // of the job when the rank ended
    RankPlan plan{};
    bool is_server() const { return plan.server >= 0; }
  };

  // Returns the ranks that read hvdrun's standard input.
  std::vector<int> open_ranks();
  void open_rank(int host, const RankPlan& plan);
  void server_ended(int number, ExitStatus status);
  bool wants_servers() const { return end_.is_running() && (!epochs_ || !epochs_->over()); }
  void start_due_servers();
  void start_server(const StartServer& start);
  void move_servers(int host);
  // The number of the host of this name; of one that was lost and has come back, which is there twice, the last.
  std::size_t host_named(const std::string& name) const;
  void end_servers() {
    for (const auto& host : hosts_.hosts) {
      if (!running_servers_.empty()) host->signal_ranks(SIGTERM);  // no rank is left
    }
  }
  void take_slots();
  void start_elastic();
  void start_process(int process, const std::string& host_name, int slot);
  bool goes_on_without(int rank, ExitStatus status, const JobEnding& said);
  void watch_allocation();
  void set_time_limit(std::optional<TimePoint> limit, bool has_changed);
  void elastic_over(const EndJob& end, std::optional<int> culprit);
  bool is_notice(int signal);
  // An elastic job ends at the next step boundary; if none comes within the limit, as if by SIGTERM.
  void end_early(const std::string& cause, Duration limit);
  void give_up_ending_early();
  // The job ends for a reason that the epochs do not decide on.
  void stop_epochs() {
    if (epochs_) epochs_->stop();
  }
  void step();
  void on_signals();
  // Writes a line with the event and its time.
  void say_age(const std::string& event);
  // Only the first failure counts: reports it to the ranks, and queries the status of all ranks at that moment.
  void look_into_failure(const std::string& cause) {
    if (at_failure_) return;
    at_failure_ = "";
    hosts_.set_failure(cause);
    status_->queries().ask(false, [this](const std::vector<StatusOfRank>& ranks) {
      at_failure_ = find_stragglers(ranks, Duration::zero());
    });
  }
  // Queries the status before ending the job: only a running process can report where its script is.
  void look_into_timeout() {
    status_->queries().ask(true, [this, is_first = !at_failure_](const std::vector<StatusOfRank>& ranks) {
      if (is_over()) return;  // the job has ended meanwhile
      if (is_first) at_failure_ = find_stragglers(ranks, Duration::zero());
      end_.timed_out(Clock::now());
    });
  }
  // Of a process that has ended.
  Failure failure_of(int number) const;
  void report();
  // No process is left, and all that the ranks have written is read.
  bool is_over() const { return hosts_left_ == 0 && output_.all_closed() && (!epochs_ || epochs_->over()); }
  bool abandons_output() const;
  Rank& rank_at(int rank) { return ranks_.at(rank); }

  const JobOptions options_;
  EventLoop& loop_;
  SignalSource& signals_;
  const int size_;
  const TimePoint start_ = Clock::now();
  std::optional<Deadline> timeout_;     // empty once it is reached
  std::optional<Deadline> time_limit_;  // of the early end before the allocation ends; likewise
  std::optional<Deadline> early_end_;   // of the wait for the next step boundary
  std::optional<TimePoint> first_sigterm_;
  JobEnd end_;
  JobOutput output_;
  std::map<int, Rank> ranks_;  // and servers, after them
  ServerPlaces server_places_;
  int next_server_number_;                                   // in ranks_
  std::set<int> running_servers_;                            // likewise
  std::optional<std::pair<int, ExitStatus>> failed_server_;  // its number: one that is not started again
  JobHosts hosts_;
  std::unique_ptr<Epochs> epochs_;                   // of an elastic job
  std::unique_ptr<AllocationEnd> allocation_;        // of an elastic job in an allocation
  std::vector<std::vector<RankPlan>> slots_;         // of an elastic job, by host
  std::vector<std::vector<RankPlan>> server_plans_;  // by host: of the servers that it has or might have
  std::unique_ptr<InputFeed> input_;
  std::optional<JobStatus> status_;
  std::optional<std::string> at_failure_;  // the stragglers at the failure; "" until the hosts have answered
  int started_ = 0, ended_ = 0;            // numbers of ranks
  std::set<int> initialized_hosts_, ended_hosts_;
  std::size_t hosts_left_ = 0;  // hosts with processes of the job
  bool impatient_ = false;      // the user has interrupted the wait for the remaining output
};

}  // namespace hvd::launcher
