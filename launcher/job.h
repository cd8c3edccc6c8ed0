// One job on this host: starts the ranks, passes on their output and hvdrun's signals, and ends them all as one.
//
// Runs on the main thread, in one event loop; the only other thread is the store's. What decides is elsewhere and pure
// (JobEnd, environments, reports); what touches one kind of thing has a class of its own.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "launcher/event_loop.h"
#include "launcher/job_end.h"
#include "launcher/job_environment.h"
#include "launcher/job_processes.h"
#include "launcher/output_forwarder.h"
#include "launcher/output_sink.h"
#include "launcher/rank_process.h"
#include "launcher/signal_source.h"
#include "launcher/terminal_input.h"

namespace hvd::launcher {

// One of the programs of a job.
struct ProgramPlan {
  int ranks = 1;
  std::string file;
  std::vector<std::string> arguments;  // with the name as typed first
  Environment environment;             // -x is in it, the rank's place is not
  std::string working_directory;       // empty: hvdrun's own
};

struct JobPlan {
  std::vector<ProgramPlan> programs;  // their ranks follow each other
  Meeting meeting;
  std::filesystem::path output_directory;  // empty: none
  bool tag_output = false;
  bool timestamp_output = false;
  bool merge_errors = false;
  std::vector<std::vector<int>> cpus;  // by rank, the numbers of those it is bound to; empty: ranks are not bound
  bool report_bindings = false;
  std::optional<int> input_rank;  // the one that reads hvdrun's standard input; empty: none
  std::optional<Duration> timeout;
  bool verbose = false;
  Duration grace{};

  int size() const;
};

class Job {
 public:
  Job(JobPlan plan, SignalSource& signals);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  // Returns hvdrun's exit code when nothing of the job is left. Throws Error if the output directory cannot be written.
  int run();

 private:
  struct Rank {
    pid_t pid = -1;
    Duration age{};  // when it ended
    std::unique_ptr<OutputForwarder> standard_output, standard_error;
  };

  OutputSink::Callbacks sink_callbacks(const std::string& name);
  OutputForwarder::Options forwarder_options(int rank, const std::string& stream);
  void start_ranks();
  void start_rank_number(int rank, const ProgramPlan& program, RankStart& start, int standard_input);
  LineSplitter::Tag tag(int rank, const std::string& stream) const;

  void step();
  void on_signals();
  void on_signal(int signal);
  void collect_ended_ranks();
  void send_due_signal();
  void report();

  void for_each_forwarder(const std::function<void(OutputForwarder&)>& action);
  bool output_is_read();
  bool abandons_output() const;
  OutputSink& error_sink() { return standard_error_ ? *standard_error_ : *standard_output_; }
  void say(const std::string& line);

  const JobPlan plan_;
  SignalSource& signals_;
  const TimePoint start_ = Clock::now();
  std::optional<Deadline> timeout_;  // until it is reached
  EventLoop loop_;
  JobEnd end_;
  JobProcesses processes_;
  std::unique_ptr<OutputSink> standard_output_, standard_error_;  // no second one where both are the same file
  std::unique_ptr<TerminalInput> terminal_input_;
  std::vector<Rank> ranks_;
  bool nothing_left_ = false;  // no process of the job
  bool impatient_ = false;     // the user does not want to wait for the output either
};

}  // namespace hvd::launcher
