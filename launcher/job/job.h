// Runs one job in hvdrun: shows the output of its ranks, forwards hvdrun's signals to them, and ends all of them
// together, on whichever hosts they run.
//
// Runs on the main thread, in one event loop. Decisions are made by pure classes (JobEnd, environments, reports); the
// Host implementations start and signal the ranks.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "launcher/job/host.h"
#include "launcher/job/job_status.h"
#include "launcher/output/output_sink.h"
#include "launcher/output/output_stream.h"
#include "launcher/output/rank_pipes.h"
#include "launcher/processes/event_loop.h"
#include "launcher/watch/job_end.h"
#include "launcher/watch/same_tracebacks.h"

namespace hvd::launcher {

struct JobPlan {
  int size = 0;
  std::filesystem::path output_directory;  // empty: none
  bool files_only = false;                 // output goes only there
  bool tag_output = false;
  bool allow_colours = false;  // in tags that go to a terminal
  bool timestamp_output = false;
  bool merge_errors = false;
  bool report_bindings = false;
  bool feeds_input = false;  // ranks that read hvdrun's standard input have not inherited it
  std::optional<Duration> timeout;
  bool verbose = false;
  Duration grace{};
};

// Where the ranks of a job run.
struct JobHosts {
  std::vector<HostPlan> plans;
  std::vector<std::unique_ptr<Host>> hosts;  // one per plan
  std::function<void()> collect_children;    // called after SIGCHLD
  std::function<void(bool on)> pause;        // called before hvdrun stops itself (Ctrl-Z), and when it continues
  std::function<void(const std::string& cause)> set_failure;  // reports the failure to ranks that are in rendezvous
};

class Job : private HostListener {
 public:
  Job(JobPlan plan, EventLoop& loop, SignalSource& signals);
  ~Job() override;
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  // For the hosts that are passed to run().
  HostListener& listener() { return *this; }
  // Writes "hvdrun: " and the line to standard error, in order with the ranks' lines.
  void say(const std::string& line);

  // Returns hvdrun's exit code when no process of the job is left. Throws Error if the output directory cannot be
  // written.
  int run(JobHosts hosts);

 private:
  struct Rank {
    int host = 0;
    pid_t pid = -1;
    Duration age{};  // of the job when the rank ended
    std::vector<int> cpus;
    std::unique_ptr<OutputStream> output, errors;  // errors: null if merged
  };

  // HostListener.
  void rank_started(int rank, pid_t pid) override;
  void rank_not_started(int rank, const std::string& cause, int exit_code) override;
  void rank_wrote(int rank, Stream stream, std::string_view bytes) override;
  void input_taken(int rank) override;
  void rank_ended(int rank, ExitStatus status, const JobEnding& said) override;
  void nothing_left(int host) override;
  void host_lost(int host, const std::string& cause) override;
  void complaint(const std::string& line) override { say(line); }
  void statuses(int host, std::uint64_t question, std::vector<RankStatus> statuses) override;
  void initialized(int host) override;
  void stalled(int host, bool on) override;

  OutputSink::Callbacks sink_callbacks(Stream stream);
  static void close_streams(Rank& rank);
  void hold(Stream stream, bool on);
  void open_streams();
  void feed_input();
  std::unique_ptr<OutputStream> open_stream(int rank, Stream stream);
  LineSplitter::Tag tag(int rank, Stream stream);

  void step();
  void on_signals();
  void on_signal(int signal);
  void send_due_signal();
  // Writes a line with the event and its time.
  void say_age(const std::string& event);
  void open_status_socket();
  // Only the first failure counts: reports it to the ranks, and queries the status of all ranks at that moment.
  void look_into_failure(const std::string& cause);
  void tell_of_failure(const std::string& cause);
  void look_into_timeout();
  void report();
  Failure failure_of(int rank) const;

  Rank& rank_at(int rank) { return ranks_[static_cast<std::size_t>(rank)]; }
  void for_each_stream(const std::function<void(OutputStream&)>& action);
  bool nothing_left() const { return hosts_left_ == 0; }
  bool output_is_read();
  bool abandons_output() const;
  OutputSink& sink_of(Stream stream) { return stream == Stream::output ? *standard_output_ : error_sink(); }
  OutputSink& error_sink() { return standard_error_ ? *standard_error_ : *standard_output_; }
  std::string name_of(int rank) const;
  std::string host_of(int rank) const;

  const JobPlan plan_;
  EventLoop& loop_;
  SignalSource& signals_;
  const TimePoint start_ = Clock::now();
  std::optional<Deadline> timeout_;  // empty once it is reached
  JobEnd end_;
  std::unique_ptr<OutputSink> standard_output_, standard_error_;  // standard_error_: null if both are the same file
  SameTracebacks tracebacks_;                                     // in standard error
  std::vector<Rank> ranks_;
  JobHosts hosts_;
  std::vector<bool> host_has_ended_;
  std::unique_ptr<InputFeed> input_;
  int started_ = 0;  // number of ranks
  std::unique_ptr<StatusQueries> status_queries_;
  std::unique_ptr<StatusSocket> status_socket_;  // null: it could not be created
  std::optional<std::string> at_failure_;        // the stragglers at the failure; "" until the hosts have answered
  int ended_ = 0;                                // number of ranks
  std::set<int> stalled_hosts_, met_hosts_;
  std::string told_stall_;        // the stable part of the reported stall; empty: none, or it is over
  bool failure_is_told_ = false;  // hosts_.set_failure was called
  std::size_t hosts_left_ = 0;    // hosts with processes of the job
  bool impatient_ = false;        // the user has interrupted the wait for the remaining output
};

}  // namespace hvd::launcher
