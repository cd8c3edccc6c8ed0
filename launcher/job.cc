#include "launcher/job.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <system_error>

#include "core/base/error.h"
#include "launcher/cpus.h"
#include "launcher/failure_report.h"

namespace hvd::launcher {
namespace {

bool asks_to_end(int signal) { return signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT; }

// Two pipes per rank, and files: 1024 descriptors do not last for 500 ranks. Returns the limit as it was, for the
// ranks: some programs misbehave with a high one.
rlimit raise_open_files() {
  rlimit original{};
  getrlimit(RLIMIT_NOFILE, &original);
  rlimit raised = original;
  raised.rlim_cur = raised.rlim_max;
  setrlimit(RLIMIT_NOFILE, &raised);
  return original;
}

// "2026-11-22 10:41:12.345"
std::string local_time() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  std::tm parts{};
  localtime_r(&now.tv_sec, &parts);
  char text[40];
  const std::size_t length = std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &parts);
  std::snprintf(text + length, sizeof text - length, ".%03ld", now.tv_nsec / 1'000'000);
  return text;
}

std::optional<Deadline> earlier(std::optional<Deadline> a, std::optional<Deadline> b) {
  if (!a || !b) return a ? a : b;
  return std::min(*a, *b);
}

}  // namespace

int JobPlan::size() const {
  int size = 0;
  for (const ProgramPlan& program : programs) size += program.ranks;
  return size;
}

Job::Job(JobPlan plan, SignalSource& signals)
    : plan_(std::move(plan)),
      signals_(signals),
      timeout_(plan_.timeout ? std::optional(start_ + *plan_.timeout) : std::nullopt),
      end_(plan_.size(), plan_.grace),
      standard_output_(std::make_unique<OutputSink>(loop_, STDOUT_FILENO, sink_callbacks("standard output"))),
      ranks_(static_cast<std::size_t>(plan_.size())) {
  if (!is_same_file(STDOUT_FILENO, STDERR_FILENO)) {
    standard_error_ = std::make_unique<OutputSink>(loop_, STDERR_FILENO, sink_callbacks("standard error"));
  }
  loop_.watch(signals_.fd(), EPOLLIN, [this] { on_signals(); });
}

Job::~Job() {
  processes_.signal_ranks(SIGKILL);  // after an exception; else there is none
}

OutputSink::Callbacks Job::sink_callbacks(const std::string& name) {
  return {.relieved = [this] { for_each_forwarder([](OutputForwarder& stream) { stream.resume(); }); },
          .reader_left = [this] { end_.output_closed(Clock::now()); },
          .failure = [this,
                      name](const std::string& cause) { say("writing " + name + ": " + cause + "; the job goes on"); }};
}

int Job::run() {
  for (const ProgramPlan& program : plan_.programs) {
    if (!plan_.verbose) break;
    say("starting " + program.file + " in " + std::to_string(program.ranks) + " processes, store at " +
        plan_.meeting.store);
  }
  start_ranks();
  while (!(nothing_left_ && output_is_read()) && !abandons_output()) step();
  for_each_forwarder([](OutputForwarder& stream) { stream.close(); });
  report();
  while (!(standard_output_->empty() && error_sink().empty()) && !abandons_output()) step();
  return end_.exit_code();
}

void Job::start_ranks() {
  RankStart start;
  start.open_files = raise_open_files();
  start.merge_errors = plan_.merge_errors;
  const FileDescriptor nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
  FileDescriptor terminal_reader;
  if (plan_.input_rank && isatty(STDIN_FILENO) == 1) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw Internal("cannot make a pipe: " + std::generic_category().message(errno));
    terminal_reader.reset(ends[0]);
    terminal_input_ = std::make_unique<TerminalInput>(loop_, STDIN_FILENO, FileDescriptor(ends[1]));
  }
  const int first_input = terminal_reader ? terminal_reader.get() : STDIN_FILENO;
  int rank = 0;
  try {
    for (const ProgramPlan& program : plan_.programs) {
      for (const int end = rank + program.ranks; rank < end; ++rank) {
        start_rank_number(rank, program, start, rank == plan_.input_rank ? first_input : nothing.get());
      }
    }
  } catch (const Error& error) {
    if (error.code() == StatusCode::invalid_argument) throw;  // the user's output directory
    say("rank " + std::to_string(rank) + " could not be started: " + error.what());
    end_.start_failed(Clock::now());
  }
  nothing_left_ = !processes_.any_left();
}

void Job::start_rank_number(int rank, const ProgramPlan& program, RankStart& start, int standard_input) {
  // On one host a rank's local number is its number.
  const int size = plan_.size();
  const RankPlace place{.rank = rank, .size = size, .local_rank = rank, .local_size = size};
  start.program = program.file;
  start.arguments = program.arguments;
  start.working_directory = program.working_directory;
  if (!plan_.cpus.empty()) start.cpus = plan_.cpus[static_cast<std::size_t>(rank)];
  start.environment = to_entries(environment_of_rank(program.environment, place, plan_.meeting));
  start.standard_input = standard_input;
  OutputForwarder::Options output = forwarder_options(rank, "stdout");
  std::optional<OutputForwarder::Options> errors;
  if (!plan_.merge_errors) {
    errors = forwarder_options(rank, "stderr");
  } else if (!plan_.output_directory.empty()) {
    std::error_code none;  // that of an earlier job would be taken for this one's
    std::filesystem::remove(output_path(plan_.output_directory, rank, size, "stderr"), none);
  }
  RankProcess process = start_rank(start, signals_);
  processes_.add_rank(rank, process.pid);
  Rank& entry = ranks_[static_cast<std::size_t>(rank)];
  entry.pid = process.pid;
  entry.standard_output = std::make_unique<OutputForwarder>(loop_, std::move(process.standard_output),
                                                            *standard_output_, std::move(output));
  if (errors) {
    entry.standard_error =
        std::make_unique<OutputForwarder>(loop_, std::move(process.standard_error), error_sink(), std::move(*errors));
  }
  if (plan_.verbose) say("rank " + std::to_string(rank) + " is process " + std::to_string(process.pid));
  if (plan_.report_bindings) {
    say("rank " + std::to_string(rank) +
        (start.cpus.empty() ? " is not bound" : " is bound to CPU " + format_cpu_list(start.cpus)));
  }
}

OutputForwarder::Options Job::forwarder_options(int rank, const std::string& stream) {
  OutputForwarder::Options options;
  options.tag = tag(rank, stream);
  options.whole_lines = plan_.size() > 1;
  if (!plan_.output_directory.empty()) {
    options.file = open_output_file(output_path(plan_.output_directory, rank, plan_.size(), stream));
  }
  options.complain = [this](const std::string& line) { say(line); };
  return options;
}

LineSplitter::Tag Job::tag(int rank, const std::string& stream) const {
  std::string place = plan_.tag_output ? "[" + std::to_string(rank) + "]<" + stream + ">: " : "";
  if (plan_.timestamp_output) return [place] { return local_time() + " " + place; };
  if (plan_.tag_output) return [place] { return place; };
  return nullptr;
}

void Job::step() {
  std::optional<Deadline> deadline = earlier(end_.next_deadline(), timeout_);
  for_each_forwarder([&](OutputForwarder& stream) { deadline = earlier(deadline, stream.next_deadline()); });
  loop_.run_once(deadline);
  const TimePoint now = Clock::now();
  for_each_forwarder([&](OutputForwarder& stream) { stream.show_partial(now); });
  if (timeout_ && now >= *timeout_) {
    timeout_.reset();
    end_.timed_out(now);
  }
  send_due_signal();
}

void Job::on_signals() {
  // Our own signals first: a rank that has ended of the same Ctrl-C is no failure.
  for (int signal : signals_.take()) on_signal(signal);
  collect_ended_ranks();
}

void Job::on_signal(int signal) {
  if (signal == SIGCHLD) return;
  if (signal == SIGTSTP) {
    processes_.signal_ranks(SIGSTOP);
    kill(getpid(), SIGSTOP);  // here hvdrun stops; SIGCONT is what comes next
    return;
  }
  if (asks_to_end(signal)) {
    impatient_ = nothing_left_;
    end_.interrupted(signal, Clock::now());
  }
  processes_.signal_ranks(signal);
}

void Job::collect_ended_ranks() {
  for (const JobProcesses::EndedRank& ended : processes_.reap()) {
    const TimePoint now = Clock::now();
    ranks_[static_cast<std::size_t>(ended.rank)].age = now - start_;
    end_.rank_ended(ended.rank, ended.status, now);
    if (plan_.verbose) {
      say("rank " + std::to_string(ended.rank) + " has ended: " +
          (ended.status.by_signal ? signal_name(ended.status.value)
                                  : "exit code " + std::to_string(ended.status.value)));
    }
  }
  nothing_left_ = !processes_.any_left();
  if (nothing_left_) {
    for_each_forwarder([](OutputForwarder& stream) { stream.close_when_empty(); });
  } else if (end_.killing()) {
    processes_.signal_all(SIGKILL);  // children of those that were killed are our children now
  }
}

void Job::send_due_signal() {
  const std::optional<int> signal = end_.signal_due(Clock::now());
  if (!signal || nothing_left_) return;
  if (*signal == SIGTERM && end_.all_ranks_ended()) say("all ranks have ended; ending what they have left running");
  if (plan_.verbose) say("sending " + signal_name(*signal) + " to what is left");
  processes_.signal_all(*signal);
  processes_.signal_all(SIGCONT);  // a stopped process would not notice
}

void Job::report() {
  if (const std::optional<int> rank = end_.first_failed()) {
    const Rank& failed = ranks_[static_cast<std::size_t>(*rank)];
    const OutputForwarder& errors = *(failed.standard_error ? failed.standard_error : failed.standard_output);
    const Failure failure{.rank = *rank,
                          .pid = failed.pid,
                          .age = failed.age,
                          .stream = plan_.merge_errors ? "output" : "standard error",
                          .last_lines = errors.tail().last_lines(kReportedLines)};
    error_sink().append(failure_report(failure, end_.ends()));
  } else if (end_.has_timed_out()) {
    error_sink().append(timeout_report(end_.ends()));
  } else if (end_.interrupting_signal() != 0) {
    error_sink().append(interruption_report(end_.interrupting_signal(), end_.ends()));
  }
  if (nothing_left_) return;
  for (pid_t pid : processes_.list_left()) say("process " + std::to_string(pid) + " could not be killed");
}

void Job::for_each_forwarder(const std::function<void(OutputForwarder&)>& action) {
  for (Rank& rank : ranks_) {
    if (rank.standard_output) action(*rank.standard_output);
    if (rank.standard_error) action(*rank.standard_error);
  }
}

bool Job::output_is_read() {
  bool result = true;
  for_each_forwarder([&](OutputForwarder& stream) { result = result && stream.closed(); });
  return result;
}

bool Job::abandons_output() const {
  const bool has_no_time = end_.interrupting_signal() != 0 || end_.has_timed_out();
  return impatient_ || (end_.gave_up() && (!nothing_left_ || has_no_time));
}

void Job::say(const std::string& line) { error_sink().append("hvdrun: " + line + "\n"); }

}  // namespace hvd::launcher
