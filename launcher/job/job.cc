#include "launcher/job/job.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <utility>

#include "core/base/error.h"
#include "launcher/output/output_stream.h"
#include "launcher/plan/host_resources.h"
#include "launcher/watch/job_end.h"
#include "launcher/watch/rank_status.h"

namespace hvd::launcher {
namespace {

bool asks_to_end(int signal) { return signal == SIGINT || signal == SIGTERM || signal == SIGHUP || signal == SIGQUIT; }

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

Job::Job(JobPlan plan, EventLoop& loop, SignalSource& signals)
    : plan_(std::move(plan)),
      loop_(loop),
      signals_(signals),
      timeout_(plan_.timeout ? std::optional(start_ + *plan_.timeout) : std::nullopt),
      end_(plan_.size, plan_.grace),
      standard_output_(std::make_unique<OutputSink>(loop_, STDOUT_FILENO, sink_callbacks(Stream::output))),
      ranks_(static_cast<std::size_t>(plan_.size)) {
  if (!is_same_file(STDOUT_FILENO, STDERR_FILENO)) {
    standard_error_ = std::make_unique<OutputSink>(loop_, STDERR_FILENO, sink_callbacks(Stream::errors));
  }
}

Job::~Job() { loop_.forget(signals_.fd()); }

OutputSink::Callbacks Job::sink_callbacks(Stream stream) {
  const std::string name = stream == Stream::output ? "standard output" : "standard error";
  return {.relieved = [this, stream] { hold(stream, false); },
          .reader_left = [this] { end_.output_closed(Clock::now()); },
          .failure = [this,
                      name](const std::string& cause) { say("writing " + name + ": " + cause + "; the job goes on"); }};
}

int Job::run(JobHosts hosts) {
  hosts_ = std::move(hosts);
  hosts_left_ = hosts_.hosts.size();
  host_has_ended_.resize(hosts_left_);
  open_streams();
  status_queries_ = std::make_unique<StatusQueries>(loop_, hosts_.plans, hosts_.hosts);
  loop_.watch(signals_.fd(), EPOLLIN, [this] { on_signals(); });
  for (std::size_t host = 0; host < hosts_.hosts.size(); ++host) hosts_.hosts[host]->start(hosts_.plans[host]);
  open_status_socket();
  if (plan_.feeds_input) feed_input();
  while (!(nothing_left() && output_is_read()) && !abandons_output()) step();
  input_.reset();
  for_each_stream([](OutputStream& stream) { stream.close(); });
  const Deadline answers = deadline_after(kStatusQueryTimeout);
  while (!status_queries_->empty() && Clock::now() < answers) step();
  error_sink().append(tracebacks_.rest());
  report();
  while (!(standard_output_->empty() && error_sink().empty()) && !abandons_output()) step();
  loop_.forget(signals_.fd());
  return end_.exit_code();
}

void Job::open_streams() {
  for (std::size_t host = 0; host < hosts_.plans.size(); ++host) {
    for (const RankPlan& plan : hosts_.plans[host].ranks) {
      const int number = plan.place.rank;
      Rank& rank = rank_at(number);
      rank.host = static_cast<int>(host);
      rank.cpus = plan.cpus;
      rank.output = open_stream(number, Stream::output);
      if (!plan_.merge_errors) {
        rank.errors = open_stream(number, Stream::errors);
      } else if (!plan_.output_directory.empty()) {
        std::error_code none;  // a file of an earlier job would be taken for this one's
        std::filesystem::remove(output_path(plan_.output_directory, number, plan_.size, "stderr"), none);
      }
    }
  }
}

void Job::feed_input() {
  std::vector<int> readers;
  for (const HostPlan& host : hosts_.plans) {
    for (const RankPlan& rank : host.ranks) {
      if (rank.reads_input) readers.push_back(rank.place.rank);
    }
  }
  input_ = std::make_unique<InputFeed>(loop_, STDIN_FILENO, readers, [this](int rank, std::string_view bytes) {
    hosts_.hosts[static_cast<std::size_t>(rank_at(rank).host)]->write_input(rank, bytes);
  });
}

void Job::input_taken(int rank) {
  if (input_) input_->taken(rank);
}

std::unique_ptr<OutputStream> Job::open_stream(int rank, Stream stream) {
  OutputStream::Options options;
  const std::string name = stream_name(stream);
  options.tag = tag(rank, stream);
  options.whole_lines = plan_.size > 1;
  options.shown = !plan_.files_only;
  options.place = 2 * rank + (stream == Stream::errors ? 1 : 0);
  if (!plan_.output_directory.empty()) {
    options.file = open_output_file(output_path(plan_.output_directory, rank, plan_.size, name));
  }
  options.complain = [this](const std::string& line) { say(line); };
  if (stream == Stream::errors && options.whole_lines && !options.tag) {
    options.hold_back = [this, rank](std::string_view lines) { return tracebacks_.feed(rank, lines, Clock::now()); };
  }
  return std::make_unique<OutputStream>(sink_of(stream), std::move(options));
}

LineSplitter::Tag Job::tag(int rank, Stream stream) {
  const bool coloured = plan_.allow_colours && sink_of(stream).is_terminal();
  std::string place = plan_.tag_output ? output_tag(rank, stream, coloured) : "";
  if (plan_.timestamp_output) return [place] { return local_time() + " " + place; };
  if (plan_.tag_output) return [place] { return place; };
  return nullptr;
}

void Job::rank_started(int rank, pid_t pid) {
  rank_at(rank).pid = pid;
  ++started_;
  if (plan_.verbose) {
    say(name_of(rank) + " is process " + std::to_string(pid));
    if (started_ == plan_.size) say_age("all ranks are started");
  }
  if (!plan_.report_bindings) return;
  const std::vector<int>& cpus = rank_at(rank).cpus;
  say(name_of(rank) + (cpus.empty() ? " is not bound" : " is bound to CPU " + format_cpu_list(cpus)));
}

void Job::rank_not_started(int rank, const std::string& cause, int exit_code) {
  const std::string text = name_of(rank) + " could not be started: " + cause;
  say(text);
  tell_of_failure(text);
  const int host = rank_at(rank).host;
  for (Rank& other : ranks_) {
    if (other.host == host && other.pid < 0) close_streams(other);
  }
  end_.start_failed(exit_code, Clock::now());
}

void Job::close_streams(Rank& rank) {
  if (rank.output) rank.output->close();
  if (rank.errors) rank.errors->close();
}

void Job::rank_wrote(int rank, Stream stream, std::string_view bytes) {
  Rank& source = rank_at(rank);
  OutputStream& target = *(stream == Stream::output || !source.errors ? source.output : source.errors);
  if (bytes.empty()) return target.close();
  target.feed(bytes);
  if (sink_of(stream).congested()) hold(stream, true);
}

void Job::hold(Stream stream, bool on) {
  for (const auto& host : hosts_.hosts) {
    for (const Stream each : {Stream::output, Stream::errors}) {
      if (&sink_of(each) == &sink_of(stream)) host->hold(each, on);
    }
  }
}

void Job::rank_ended(int rank, ExitStatus status, const JobEnding& said) {
  const TimePoint now = Clock::now();
  rank_at(rank).age = now - start_;
  if (input_) input_->forget(rank);
  ++ended_;
  end_.rank_ended(rank, status, said, now);
  if (const auto first = end_.first_failed()) {
    look_into_failure(rank_failure(*first, host_of(*first), *end_.ends()[static_cast<std::size_t>(*first)]));
  }
  if (!plan_.verbose) return;
  say(name_of(rank) +
      " has ended: " + (status.by_signal ? signal_name(status.value) : "exit code " + std::to_string(status.value)));
  if (ended_ == plan_.size) say_age("all ranks have ended");
}

void Job::say_age(const std::string& event) {
  const auto age = std::chrono::round<std::chrono::milliseconds>(Clock::now() - start_).count();
  say(event + ", " + std::to_string(age) + " ms after they were planned");
}

void Job::nothing_left(int host) {
  const auto entry = host_has_ended_.begin() + host;
  if (*entry) return;
  *entry = true;
  --hosts_left_;
}

void Job::host_lost(int host, const std::string& cause) {
  std::vector<int> ranks;
  for (int rank = 0; rank < plan_.size; ++rank) {
    if (rank_at(rank).host != host) continue;
    ranks.push_back(rank);
    close_streams(rank_at(rank));
  }
  const LostHost lost{.name = hosts_.plans[static_cast<std::size_t>(host)].name, .ranks = ranks, .cause = cause};
  end_.host_lost(lost, Clock::now());
  status_queries_->host_lost(host);
  stalled_hosts_.erase(host);
  look_into_failure(host_loss(lost));
  nothing_left(host);
}

void Job::statuses(int host, std::uint64_t question, std::vector<RankStatus> statuses) {
  status_queries_->answered(host, question, std::move(statuses));
}

void Job::initialized(int host) {
  const bool is_new = met_hosts_.insert(host).second;
  if (is_new && met_hosts_.size() == hosts_.hosts.size()) say_age("all ranks have met in init");
}

// As long as any host is stalled it is the same stall: reported once, and again if its stable part changes. A warning
// of the stall inspector is always a stall; an operation that merely takes long may not be, while other ranks make
// progress.
void Job::stalled(int host, bool on) {
  if (!on) stalled_hosts_.erase(host);
  if (stalled_hosts_.empty()) told_stall_.clear();
  if (!on) return;
  stalled_hosts_.insert(host);
  if (end_.next_deadline()) return;
  status_queries_->ask(true, [this](const std::vector<StatusOfRank>& ranks) {
    const std::string text = find_stragglers(ranks, time_to_count_as_stalled(ranks));
    std::string what = stable_part_of(text);
    if (text.empty() || what == told_stall_) return;
    told_stall_ = std::move(what);
    say("the job is stalled: " + text);
  });
}

void Job::open_status_socket() {
  try {
    status_socket_ = std::make_unique<StatusSocket>(loop_, [this](const std::string& question, auto answer) {
      if (question == "stacks") {
        status_queries_->ask(true, [answer](const std::vector<StatusOfRank>& ranks) { answer(stacks_text(ranks)); });
      } else if (question == "statuses") {
        status_queries_->ask(false, [answer](const std::vector<StatusOfRank>& ranks) { answer(status_table(ranks)); });
      } else {
        answer("unknown question\n");
      }
    });
  } catch (const Error& error) {
    if (plan_.verbose) say(std::string("hvd stacks and hvd top cannot reach this job: ") + error.what());
  }
}

void Job::look_into_failure(const std::string& cause) {
  if (at_failure_) return;
  at_failure_ = "";
  tell_of_failure(cause);
  status_queries_->ask(false, [this](const std::vector<StatusOfRank>& ranks) {
    at_failure_ = find_stragglers(ranks, Duration::zero());
  });
}

void Job::tell_of_failure(const std::string& cause) {
  if (!std::exchange(failure_is_told_, true)) hosts_.set_failure(cause);
}

// Queries the status before ending the job: only a running process can report where its script is.
void Job::look_into_timeout() {
  status_queries_->ask(true, [this, is_first = !at_failure_](const std::vector<StatusOfRank>& ranks) {
    if (nothing_left() && output_is_read()) return;  // the job has ended meanwhile
    if (is_first) at_failure_ = find_stragglers(ranks, Duration::zero());
    end_.timed_out(Clock::now());
  });
}

void Job::step() {
  std::optional<Deadline> deadline = earlier(end_.next_deadline(), timeout_);
  deadline = earlier(deadline, tracebacks_.next_deadline());
  for_each_stream([&](OutputStream& stream) { deadline = earlier(deadline, stream.next_deadline()); });
  loop_.run_once(deadline);
  const TimePoint now = Clock::now();
  for_each_stream([&](OutputStream& stream) { stream.show_partial(now); });
  if (const std::string held_back = tracebacks_.due(now); !held_back.empty()) error_sink().append(held_back);
  if (timeout_ && now >= *timeout_) {
    timeout_.reset();
    look_into_timeout();
  }
  send_due_signal();
}

void Job::on_signals() {
  // hvdrun's own signals first: a rank that was ended by the same Ctrl-C has not failed.
  for (int signal : signals_.take()) on_signal(signal);
  hosts_.collect_children();
}

void Job::on_signal(int signal) {
  if (signal == SIGCHLD) return;
  if (signal == SIGTSTP) {
    for (const auto& host : hosts_.hosts) host->signal_ranks(SIGSTOP);
    hosts_.pause(true);
    kill(getpid(), SIGSTOP);  // hvdrun stops here until SIGCONT
    hosts_.pause(false);
    return;
  }
  if (asks_to_end(signal)) {
    impatient_ = nothing_left();
    end_.interrupted(signal, Clock::now());
  }
  for (const auto& host : hosts_.hosts) host->signal_ranks(signal);
}

void Job::send_due_signal() {
  const std::optional<int> signal = end_.signal_due(Clock::now());
  if (!signal || nothing_left()) return;
  if (*signal == SIGTERM && end_.all_ranks_ended()) say("all ranks have ended; ending what they have left running");
  if (plan_.verbose) say("sending " + signal_name(*signal) + " to what is left");
  for (const auto& host : hosts_.hosts) {
    host->signal_all(*signal);
    host->signal_all(SIGCONT);  // a stopped process would not handle the signal
  }
}

void Job::report() {
  if (const auto& lost = end_.lost_hosts(); !lost.empty() && !end_.first_failed()) {
    error_sink().append(lost_host_report(lost, end_.ends()));
  } else if (const std::optional<int> rank = end_.first_failed()) {
    error_sink().append(failure_report(failure_of(*rank), end_.ends()));
  } else if (end_.has_timed_out()) {
    error_sink().append(timeout_report(end_.ends()));
  } else if (end_.interrupting_signal() != 0) {
    error_sink().append(interruption_report(end_.interrupting_signal(), end_.ends()));
  }
  const bool blames_the_job = end_.first_failed() || !end_.lost_hosts().empty() || end_.has_timed_out();
  if (blames_the_job && at_failure_ && !at_failure_->empty()) say("at that moment: " + *at_failure_);
  for (const auto& host : hosts_.hosts) {
    for (pid_t pid : host->list_left()) say("process " + std::to_string(pid) + " could not be killed");
  }
}

Failure Job::failure_of(int rank) const {
  const Rank& failed = ranks_[static_cast<std::size_t>(rank)];
  const OutputStream& errors = *(failed.errors ? failed.errors : failed.output);
  return {.rank = rank,
          .host = host_of(rank),
          .pid = failed.pid,
          .age = failed.age,
          .stream = plan_.merge_errors ? "output" : "standard error",
          .last_lines = errors.tail().last_lines(kReportedLines)};
}

void Job::for_each_stream(const std::function<void(OutputStream&)>& action) {
  for (Rank& rank : ranks_) {
    if (rank.output) action(*rank.output);
    if (rank.errors) action(*rank.errors);
  }
}

bool Job::output_is_read() {
  bool result = true;
  for_each_stream([&](OutputStream& stream) { result = result && stream.closed(); });
  return result;
}

bool Job::abandons_output() const {
  const bool has_no_time = end_.interrupting_signal() != 0 || end_.has_timed_out();
  return impatient_ || (end_.gave_up() && (!nothing_left() || has_no_time));
}

std::string Job::name_of(int rank) const {
  const std::string host = host_of(rank);
  return "rank " + std::to_string(rank) + (host.empty() ? "" : " on " + host);
}

// Empty if the job has only one host.
std::string Job::host_of(int rank) const {
  if (hosts_.hosts.size() < 2) return "";
  return hosts_.plans[static_cast<std::size_t>(ranks_[static_cast<std::size_t>(rank)].host)].name;
}

void Job::say(const std::string& line) { error_sink().append("hvdrun: " + line + "\n"); }

}  // namespace hvd::launcher
