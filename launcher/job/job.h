// One job: what its ranks write is passed on, hvdrun's signals too, and all of them end as one, wherever they run.
//
// Runs on the main thread, in one event loop. What decides is elsewhere and pure (JobEnd, environments, reports); what
// touches one kind of thing has a class of its own; where ranks run is the hosts' affair.
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
#include "launcher/job/status_queries.h"
#include "launcher/job/status_socket.h"
#include "launcher/loop/event_loop.h"
#include "launcher/loop/signal_source.h"
#include "launcher/output/input_feed.h"
#include "launcher/output/output_sink.h"
#include "launcher/output/output_stream.h"
#include "launcher/watch/failure_report.h"
#include "launcher/watch/job_end.h"
#include "launcher/watch/same_tracebacks.h"

namespace hvd::launcher {

struct JobPlan {
  int size = 0;
  std::filesystem::path output_directory;  // empty: none
  bool files_only = false;                 // output goes there alone
  bool tag_output = false;
  bool allow_colours = false;  // of tags, where they go to a terminal
  bool timestamp_output = false;
  bool merge_errors = false;
  bool report_bindings = false;
  bool feeds_input = false;  // ranks that read hvdrun's standard input do not have it for their own
  std::optional<Duration> timeout;
  bool verbose = false;
  Duration grace{};
};

// Where the ranks of a job run.
struct JobHosts {
  std::vector<HostPlan> plans;
  std::vector<std::unique_ptr<Host>> hosts;  // as many
  std::function<void()> collect_children;    // after SIGCHLD
  std::function<void(bool on)> pause;        // before hvdrun stops itself (Ctrl-Z), and when it goes on
  std::function<void(const std::string& cause)> set_failure;  // why the job has failed, for ranks that meet just now
};

class Job : private HostListener {
 public:
  Job(JobPlan plan, EventLoop& loop, SignalSource& signals);
  ~Job() override;
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  // Of the hosts that run() gets.
  HostListener& listener() { return *this; }
  // "hvdrun: " and the line, on standard error, in its turn among the ranks' lines.
  void say(const std::string& line);

  // Returns hvdrun's exit code when nothing of the job is left. Throws Error if the output directory cannot be written.
  int run(JobHosts hosts);

 private:
  struct Rank {
    int host = 0;
    pid_t pid = -1;
    Duration age{};  // when it ended
    std::vector<int> cpus;
    std::unique_ptr<OutputStream> output, errors;  // merged: no second one
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
  // Says what has happened, and when.
  void say_age(const std::string& event);
  void open_status_socket();
  // Of several failures the first counts. Tells of it, and asks what all were doing then.
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
  std::optional<Deadline> timeout_;  // until it is reached
  JobEnd end_;
  std::unique_ptr<OutputSink> standard_output_, standard_error_;  // no second one where both are the same file
  SameTracebacks tracebacks_;                                     // of standard error
  std::vector<Rank> ranks_;
  JobHosts hosts_;
  std::vector<bool> host_has_ended_;
  std::unique_ptr<InputFeed> input_;
  int started_ = 0;  // ranks
  std::unique_ptr<StatusQueries> status_queries_;
  std::unique_ptr<StatusSocket> status_socket_;  // null: there is none to be had
  std::optional<std::string> at_failure_;        // who was behind then; empty while hosts have not answered, too
  int ended_ = 0;                                // ranks
  std::set<int> stalled_hosts_, met_hosts_;
  std::string told_stall_;        // its stable_part; empty: there is none, or it is over
  bool failure_is_told_ = false;  // to ranks that meet
  std::size_t hosts_left_ = 0;    // that have processes of the job
  bool impatient_ = false;        // the user does not want to wait for the output either
};

}  // namespace hvd::launcher
