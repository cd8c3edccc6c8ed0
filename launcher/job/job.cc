#include "launcher/job/job.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <iterator>
#include <utility>

#include "launcher/output/output_stream.h"
#include "launcher/plan/host_resources.h"

namespace hvd::launcher {
namespace {

constexpr int kFirstServer = 1 << 20;  // of an elastic job, in which ever more processes are numbered

std::string with_age(const std::string& event, TimePoint start) {
  const auto age = std::chrono::round<std::chrono::milliseconds>(Clock::now() - start).count();
  return event + ", " + std::to_string(age) + " ms after they were planned";
}

// Whether nobody waits any longer for what the processes that are left might still write.
bool gave_up_output(const JobEnd& end, bool any_left) {
  const JobEnd::Reason reason = end.reason();
  const bool has_no_time = reason == JobEnd::Reason::interrupted || reason == JobEnd::Reason::timed_out;
  return end.gave_up() && (any_left || has_no_time);
}

}  // namespace

Job::Job(JobOptions options, int size, EventLoop& loop, SignalSource& signals)
    : options_(std::move(options)),
      loop_(loop),
      signals_(signals),
      size_(size),
      timeout_(options_.timeout ? std::optional(start_ + *options_.timeout) : std::nullopt),
      end_(options_.elastic ? 0 : size, options_.grace),
      output_(loop, size, options_.servers, options_.output,
              {.hold =
                   [this](Stream stream, bool on) {
                     for (const auto& host : processes_.hosts()) host->hold(stream, on);
                   },
               .reader_left =
                   [this] {
                     if (elastic_) elastic_->stop();
                     end_.output_closed(Clock::now());
                   }}),
      processes_(options_.elastic
                     ? std::optional(JobProcesses::Elastic{options_.stopped_limit, options_.preemption_script})
                     : std::nullopt,
                 [this](const RankPlan& process) { output_.open(process, started_ > 0); }),
      servers_(ServerPlacement(options_.servers, options_.elastic ? options_.elastic->num_proc : 0),
               options_.elastic ? kFirstServer : size + options_.servers, processes_,
               {.wanted = [this] { return end_.is_running() && (!elastic_ || elastic_->goes_on()); },
                .say = [this](const std::string& line) { output_.say(line); },
                .failed =
                    [this](ExitStatus status, const std::string& cause) {
                      if (elastic_) elastic_->stop();
                      end_.server_failed(status, Clock::now());
                      report_->failed(cause);
                    }},
               options_.verbose) {}

Job::~Job() { loop_.forget(signals_.fd()); }

int Job::run(JobHosts hosts) {
  hosts_ = std::move(hosts);
  for (std::size_t host = 0; host < hosts_.hosts.size(); ++host) {
    add_host(std::move(hosts_.plans[host]), std::move(hosts_.hosts[host]));
  }
  hosts_.plans.clear();
  hosts_.hosts.clear();
  status_.emplace(
      loop_, processes_.plans(), processes_.hosts(), [this](const std::string& line) { output_.say(line); },
      options_.verbose);
  const JobParts parts{.processes = processes_, .servers = servers_, .end = end_, .output = output_};
  report_.emplace(parts, status_->queries(), std::move(hosts_.set_failure), options_.output.merge_errors);
  loop_.watch(signals_.fd(), EPOLLIN, [this] { on_signals(); });
  if (options_.elastic) {
    const EarlyEnd::Options early_end{
        .margin = options_.time_limit_margin, .limit = options_.elastic->elastic_timeout, .verbose = options_.verbose};
    elastic_ =
        std::make_unique<ElasticRun>(*options_.elastic, early_end, *hosts_.elastic_store, loop_, signals_, parts);
    status_->queries().set_epoch_ranks([this](int process) { return elastic_->runner().epoch_rank_of(process); });
    elastic_->use_all_hosts();
  } else {
    servers_.start_with_hosts(start_);
    processes_.start_all();
  }
  if (hosts_.feeds_input) {
    std::vector<int> readers;
    for (const auto& [number, process] : processes_.all()) {
      if (process.plan.reads_input) readers.push_back(number);
    }
    input_ = std::make_unique<InputFeed>(loop_, STDIN_FILENO, readers, [this](int rank, std::string_view bytes) {
      processes_.hosts()[static_cast<std::size_t>(processes_.at(rank).host)]->write_input(rank, bytes);
    });
  }
  const auto abandons_output = [&] { return impatient_ || gave_up_output(end_, processes_.any_left()); };
  while (!is_over() && !abandons_output()) step();
  input_.reset();
  output_.close_all();
  const Deadline answers = deadline_after(kStatusQueryTimeout);
  while (!status_->queries().empty() && Clock::now() < answers) step();
  report_->write();
  while (!output_.all_written() && !abandons_output()) step();
  loop_.forget(signals_.fd());
  return end_.exit_code();
}

int Job::next_host() const { return static_cast<int>(processes_.hosts().size()); }

void Job::add_host(HostPlan plan, std::unique_ptr<Host> host) {
  servers_.add_host(plan.servers);
  processes_.add_host(std::move(plan), std::move(host));
}

void Job::set_slots(int host, std::vector<RankPlan> slots) { processes_.set_slots(host, std::move(slots)); }

void Job::use_hosts(const std::vector<HostCount>& hosts) {
  if (elastic_) elastic_->use_hosts(hosts);
}

// ---- Events

void Job::child_ended(pid_t pid, ExitStatus status) {
  if (elastic_) elastic_->early_end().child_ended(pid, status);
}

void Job::rank_started(int rank, pid_t pid) {
  JobProcess& process = processes_.at(rank);
  process.pid = pid;
  if (!process.is_server()) ++started_;
  if (options_.verbose) {
    output_.say(process.name + " is process " + std::to_string(pid));
    if (started_ == size_ && !process.is_server() && !elastic_) output_.say(with_age("all ranks are started", start_));
  }
  if (!options_.report_bindings) return;
  const std::vector<int>& cpus = process.plan.cpus;
  output_.say(process.name + (cpus.empty() ? " is not bound" : " is bound to CPU " + format_cpu_list(cpus)));
}

void Job::rank_not_started(int rank, const std::string& cause, int exit_code) {
  const JobProcess& process = processes_.at(rank);
  const std::string text = process.name + " could not be started: " + cause;
  output_.say(text);
  if (elastic_) {
    output_.close(rank);
    if (process.is_server()) return servers_.ended(rank, {.value = exit_code});
    return elastic_->process_not_started(rank, text, exit_code);
  }
  report_->tell_ranks(text);
  for (const auto& [number, other] : processes_.all()) {
    if (other.host != process.host || other.pid >= 0) continue;
    output_.close(number);
    servers_.stopped(number);
  }
  end_.start_failed(exit_code, Clock::now());
}

void Job::rank_wrote(int rank, Stream stream, std::string_view bytes) { output_.wrote(rank, stream, bytes); }

void Job::input_consumed(int rank) {
  if (input_) input_->taken(rank);
}

void Job::rank_ended(int rank, ExitStatus status, const JobEnding& said) {
  const TimePoint now = Clock::now();
  JobProcess& process = processes_.at(rank);
  process.age = now - start_;
  if (process.is_server()) return servers_.ended(rank, status);
  if (input_) input_->forget(rank);
  ++ended_;
  if (goes_on()) {
    elastic_->process_ended(rank, status, said);
  } else {
    end_.rank_ended(rank, status, said, now);
  }
  if (end_.all_ranks_ended() && !goes_on() && servers_.any_runs()) processes_.signal_ranks(SIGTERM);
  if (const auto first = end_.first_failed()) {
    const RankEnd& end = *end_.ends()[static_cast<std::size_t>(*first)];
    report_->failed(rank_failure(*first, processes_.at(*first).host_name, end));
  }
  if (!options_.verbose) return;
  output_.say(process.name + " has ended: " +
              (status.by_signal ? signal_name(status.value) : "exit code " + std::to_string(status.value)));
  if (ended_ == size_ && !elastic_) output_.say(with_age("all ranks have ended", start_));
}

void Job::nothing_left(int host) {
  // An agent may have said so before it was told to start a server again.
  if (!servers_.any_runs_on(host)) processes_.nothing_left(host);
}

void Job::initialized(int host) {
  if (elastic_) return;  // they meet again and again
  const bool is_new = initialized_hosts_.insert(host).second;
  const auto with_ranks =
      std::ranges::count_if(processes_.plans(), [](const HostPlan& plan) { return !plan.ranks.empty(); });
  if (!is_new || std::ssize(initialized_hosts_) != with_ranks) return;
  output_.say(with_age("all ranks have met in init", start_));
}

void Job::host_lost(int host, const std::string& cause) {
  LostHost lost{.name = processes_.plan_of(host).name, .ranks = {}, .servers = {}, .cause = cause};
  for (const auto& [number, process] : processes_.all()) {
    if (process.host != host) continue;
    output_.close(number);
    if (!process.is_server()) lost.ranks.push_back(number);
    if (servers_.stopped(number) && !end_.all_ranks_ended()) lost.servers.push_back(process.plan.server);
  }
  status_->host_lost(host);
  if (goes_on()) return elastic_->host_lost(host, lost);
  if (end_.host_lost(lost, Clock::now())) report_->failed(host_loss(lost));
  nothing_left(host);
}

void Job::host_preempted(int host) {
  if (goes_on()) elastic_->host_preempted(host);
}

void Job::warning(const std::string& line) { output_.say(line); }

void Job::statuses(int host, std::uint64_t query_id, std::vector<RankStatus> statuses) {
  status_->queries().answered(host, query_id, std::move(statuses));
}

void Job::stalled(int host, bool on) { status_->stalled(host, on, end_.next_deadline().has_value()); }

void Job::step() {
  std::optional<Deadline> next = earlier(earlier(end_.next_deadline(), output_.next_deadline()), timeout_);
  next = earlier(next, servers_.next_deadline());
  if (elastic_) next = earlier(next, elastic_->next_deadline());
  loop_.run_once(next);
  const TimePoint now = Clock::now();
  const auto is_due = [now](std::optional<Deadline> deadline) { return deadline && now >= *deadline; };
  if (elastic_ && is_due(elastic_->runner().next_deadline())) elastic_->runner().on_time();
  if (is_due(servers_.next_deadline())) servers_.start_due();
  output_.show_due(now);
  if (is_due(timeout_)) {
    timeout_.reset();
    if (elastic_) elastic_->stop();
    report_->timed_out();
  }
  if (elastic_) elastic_->early_end().check_time(now);
  send_due_signal();
}

void Job::send_due_signal() {
  const std::optional<int> signal = end_.signal_due(Clock::now());
  if (!signal || !processes_.any_left()) return;
  if (*signal == SIGTERM && end_.all_ranks_ended()) {
    output_.say(servers_.any_runs() ? "all ranks have ended; ending the servers, which have not"
                                    : "all ranks have ended; ending what they have left running");
  }
  if (options_.verbose) output_.say("sending " + signal_name(*signal) + " to what is left");
  processes_.signal_all(*signal);
  processes_.signal_all(SIGCONT);  // a stopped process would not handle the signal
}

void Job::on_signals() {
  // hvdrun's own signals first: a rank that was ended by the same Ctrl-C has not failed.
  for (const int signal : signals_.take()) {
    if (signal == SIGCHLD || (elastic_ && elastic_->early_end().take_notice(signal))) continue;
    if (asks_to_end(signal)) {
      if (!end_.interrupted(signal, Clock::now())) continue;
      impatient_ = !processes_.any_left();
      if (elastic_) elastic_->stop();
    }
    processes_.signal_ranks(signal == SIGTSTP ? SIGSTOP : signal);
    if (signal != SIGTSTP) continue;
    hosts_.pause(true);
    kill(getpid(), SIGSTOP);  // hvdrun stops here until SIGCONT
    hosts_.pause(false);
  }
  hosts_.collect_children();
}

bool Job::goes_on() const { return elastic_ && elastic_->goes_on(); }

bool Job::is_over() const { return !processes_.any_left() && output_.all_closed() && !goes_on(); }

}  // namespace hvd::launcher
