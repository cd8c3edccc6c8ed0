#include "launcher/job/job.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <iterator>
#include <utility>

#include "core/base/error.h"
#include "launcher/output/output_stream.h"
#include "launcher/plan/host_resources.h"
#include "launcher/watch/rank_status.h"

namespace hvd::launcher {
namespace {

constexpr int kFirstServer = 1 << 20;  // of an elastic job, in which ever more processes are numbered

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
                     stop_epochs();
                     end_.output_closed(Clock::now());
                   }}),
      elastic_{.stopped_limit = options_.stopped_limit, .preemption_script = options_.preemption_script},
      processes_(options_.elastic ? &elastic_ : nullptr),
      servers_(ServerPlaces(options_.servers, options_.elastic ? options_.elastic->num_proc : 0),
               options_.elastic ? kFirstServer : size + options_.servers, processes_,
               [this](int host, const RankPlan& plan) { start_process(host, plan); }) {}

int Job::run(JobHosts hosts) {
  hosts_ = std::move(hosts);
  hosts_.set_failure = [is_first = true, tell = std::move(hosts_.set_failure)](const std::string& cause) mutable {
    if (std::exchange(is_first, false)) tell(cause);
  };
  for (std::size_t host = 0; host < hosts_.hosts.size(); ++host) {
    add_host(std::move(hosts_.plans[host]), std::move(hosts_.hosts[host]));
  }
  hosts_.plans.clear();
  hosts_.hosts.clear();
  const std::vector<int> readers = open_all();
  status_.emplace(
      loop_, processes_.plans(), processes_.hosts(), [this](const std::string& line) { output_.say(line); },
      options_.verbose);
  loop_.watch(signals_.fd(), EPOLLIN, [this] { on_signals(); });
  options_.elastic ? start_elastic() : processes_.start_all();
  if (hosts_.feeds_input) {
    input_ = std::make_unique<InputFeed>(loop_, STDIN_FILENO, readers, [this](int rank, std::string_view bytes) {
      processes_.hosts()[static_cast<std::size_t>(processes_.at(rank).host)]->write_input(rank, bytes);
    });
  }
  while (!is_over() && !abandons_output()) step();
  input_.reset();
  output_.close_all();
  const Deadline answers = deadline_after(kStatusQueryTimeout);
  while (!status_->queries().empty() && Clock::now() < answers) step();
  report();
  while (!output_.all_written() && !abandons_output()) step();
  loop_.forget(signals_.fd());
  return end_.exit_code();
}

void Job::add_host(HostPlan plan, std::unique_ptr<Host> host) {
  servers_.add_host(plan.servers);
  processes_.add_host(std::move(plan), std::move(host));
}

void Job::open(int host, const RankPlan& plan) {
  processes_.open(host, plan);
  output_.open(plan);
}

std::vector<int> Job::open_all() {
  std::vector<int> readers;
  std::vector<HostCount> hosts;
  for (int host = 0; host < next_host(); ++host) {
    for (const RankPlan& plan : processes_.plan_of(host).ranks) {
      open(host, plan);
      if (plan.reads_input) readers.push_back(plan.place.rank);
    }
    for (const RankPlan& plan : processes_.plan_of(host).servers) {
      open(host, plan);
      servers_.opened(plan.place.rank, start_);
    }
    hosts.emplace_back(processes_.plan_of(host).name, 1);
  }
  if (!options_.elastic) servers_.hosts_changed(hosts);
  return readers;
}

// ---- Elastic jobs

void Job::start_elastic() {
  epochs_ = std::make_unique<Epochs>(
      *options_.elastic, *hosts_.elastic_store,
      Epochs::Callbacks{.start =
                            [this](int process, const std::string& name, int slot) {
                              const int host = processes_.host_named(name);
                              const std::vector<RankPlan>& slots = processes_.slots_of(host);
                              RankPlan plan = slots[static_cast<std::size_t>(slot) % slots.size()];
                              plan.place.rank = process;
                              end_.process_started();
                              start_process(host, plan);
                            },
                        .host_of = [this](int process) { return processes_.at(process).host_name; },
                        .say = [this](const std::string& line) { output_.say(line); },
                        .over =
                            [this](const EndJob& end, std::optional<int> culprit) {
                              if (end.early) return end_.ended_early(Clock::now());
                              if (!end.failure.empty()) output_.say("the job has failed: " + end.failure);
                              end_.elastic_over(!end.failure.empty(), culprit, Clock::now());
                            }});
  const EarlyEnd::Options options{
      .margin = options_.time_limit_margin, .limit = options_.elastic->elastic_timeout, .verbose = options_.verbose};
  early_end_ =
      std::make_unique<EarlyEnd>(options, *epochs_, loop_, signals_,
                                 EarlyEnd::Callbacks{.say = [this](const std::string& line) { output_.say(line); },
                                                     .give_up =
                                                         [this] {
                                                           stop_epochs();
                                                           end_.interrupted(SIGTERM, Clock::now());
                                                         }});
  status_->queries().use_places([this](int process) { return epochs_->place_of(process); });
  std::vector<HostCount> hosts;
  for (int host = 0; host < next_host(); ++host) {
    hosts.emplace_back(processes_.plan_of(host).name, static_cast<int>(processes_.slots_of(host).size()));
  }
  use_hosts(hosts);
}

void Job::use_hosts(const std::vector<HostCount>& hosts) {
  if (!epochs_) return;
  servers_.hosts_changed(hosts);
  start_due_servers();
  epochs_->set_hosts(hosts);
}

void Job::start_process(int host, const RankPlan& plan) {
  open(host, plan);
  processes_.start(plan.place.rank);
}

// The others go on.
void Job::process_ended(int process, ExitStatus status, const JobEnding& said) {
  RankEnd end{.status = status, .said = said};
  // It named a rank of its epoch, whose process has another number.
  if (end.said.kind == JobEnding::Kind::consequence) end.said = {.in_job = true};
  processes_.remove(process);
  end_.process_ended(process, end);
  epochs_->process_ended(process, end);
  servers_.process_failed();
  start_due_servers();
  if (wants_servers()) servers_.leave(processes_.at(process).host);
}

void Job::child_ended(pid_t pid, ExitStatus status) {
  if (early_end_) early_end_->child_ended(pid, status);
}

void Job::elastic_host_lost(const LostHost& lost, int host) {
  bool had_ranks = false;
  for (const int rank : lost.ranks) {
    if (end_.ends()[static_cast<std::size_t>(rank)]) continue;
    end_.process_ended(rank, {.status = {}, .lost = true});
    had_ranks = true;
  }
  processes_.remove_all(host);
  nothing_left(host);
  if (!had_ranks) output_.say("host " + lost.name + " is lost, and had no ranks: " + lost.cause);
  for (const int server : lost.servers) {
    output_.say("server " + std::to_string(server) + " is lost with host " + lost.name + ": " + lost.cause);
  }
  servers_.host_lost(lost.name, Clock::now());
  epochs_->host_lost(lost.name, "host " + lost.name + " is lost: " + lost.cause, had_ranks);
  start_due_servers();
}

void Job::host_preempted(int host) {
  if (!is_elastic_and_goes_on()) return;
  const std::string& name = processes_.plan_of(host).name;
  servers_.host_preempted(name);
  epochs_->host_preempted(name);
  if (epochs_->ends_early()) early_end_->begin("all hosts are preempted");
  if (wants_servers()) servers_.leave(host);
}

// ---- Events

void Job::rank_started(int rank, pid_t pid) {
  JobProcess& process = processes_.at(rank);
  process.pid = pid;
  if (!process.is_server()) ++started_;
  if (options_.verbose) {
    output_.say(process.name + " is process " + std::to_string(pid));
    if (started_ == size_ && !process.is_server() && !epochs_) say_age("all ranks are started");
  }
  if (!options_.report_bindings) return;
  const std::vector<int>& cpus = process.plan.cpus;
  output_.say(process.name + (cpus.empty() ? " is not bound" : " is bound to CPU " + format_cpu_list(cpus)));
}

void Job::rank_not_started(int rank, const std::string& cause, int exit_code) {
  const JobProcess& process = processes_.at(rank);
  const std::string text = process.name + " could not be started: " + cause;
  output_.say(text);
  if (epochs_) output_.close(rank);
  if (epochs_ && process.is_server()) return server_ended(rank, {.value = exit_code});
  if (epochs_) {
    end_.process_ended(rank, {.status = {.value = exit_code}});
    return epochs_->process_not_started(rank, text);
  }
  hosts_.set_failure(text);
  for (const auto& [number, other] : processes_.all()) {
    if (other.host != process.host || other.pid >= 0) continue;
    output_.close(number);
    servers_.stopped(number);
  }
  end_.start_failed(exit_code, Clock::now());
}

void Job::rank_ended(int rank, ExitStatus status, const JobEnding& said) {
  const TimePoint now = Clock::now();
  JobProcess& process = processes_.at(rank);
  process.age = now - start_;
  if (process.is_server()) return server_ended(rank, status);
  if (input_) input_->forget(rank);
  ++ended_;
  is_elastic_and_goes_on() ? process_ended(rank, status, said) : end_.rank_ended(rank, status, said, now);
  if (end_.all_ranks_ended() && !is_elastic_and_goes_on() && servers_.any_runs()) processes_.signal_ranks(SIGTERM);
  if (const auto first = end_.first_failed()) {
    const RankEnd& end = *end_.ends()[static_cast<std::size_t>(*first)];
    look_into_failure(rank_failure(*first, processes_.at(*first).host_name, end));
  }
  if (!options_.verbose) return;
  output_.say(process.name + " has ended: " +
              (status.by_signal ? signal_name(status.value) : "exit code " + std::to_string(status.value)));
  if (ended_ == size_ && !epochs_) say_age("all ranks have ended");
}

void Job::server_ended(int number, ExitStatus status) {
  servers_.stopped(number);
  processes_.remove(number);
  const JobProcess& server = processes_.at(number);
  const std::string what = server.name + " (pid " + std::to_string(server.pid) + ") " + ending_text(status);
  if (options_.verbose) output_.say(what);
  // In an elastic job no server is done before all processes are.
  if (!wants_servers() || (status.ok() && !epochs_)) return;
  const TimePoint now = Clock::now();
  if (const auto again = servers_.ended(number, status, now)) {
    char delay[32] = "";
    if (*again > now) std::snprintf(delay, sizeof delay, " in %.2g s", seconds(*again - now));
    output_.say(what + "; it is started again" + delay);
    return start_due_servers();
  }
  stop_epochs();
  end_.server_failed(status, now);
  look_into_failure(what + ", after it was started again " + std::to_string(ServerPlaces::kMaxFailures) + " times");
}

void Job::initialized(int host) {
  if (epochs_) return;  // they meet again and again
  const bool is_new = initialized_hosts_.insert(host).second;
  const auto with_ranks =
      std::ranges::count_if(processes_.plans(), [](const HostPlan& plan) { return !plan.ranks.empty(); });
  if (is_new && std::ssize(initialized_hosts_) == with_ranks) say_age("all ranks have met in init");
}

void Job::say_age(const std::string& event) {
  const auto age = std::chrono::round<std::chrono::milliseconds>(Clock::now() - start_).count();
  output_.say(event + ", " + std::to_string(age) + " ms after they were planned");
}

void Job::host_lost(int host, const std::string& cause) {
  LostHost lost{.name = processes_.plan_of(host).name, .ranks = {}, .servers = {}, .cause = cause};
  for (const auto& [number, process] : processes_.all()) {
    if (process.host != host) continue;
    output_.close(number);
    if (!process.is_server()) lost.ranks.push_back(number);
    if (servers_.stopped(number) && !end_.all_ranks_ended()) lost.servers.push_back(process.plan.server);
  }
  if (is_elastic_and_goes_on()) return elastic_host_lost(lost, host);
  end_.host_lost(lost, Clock::now());
  status_->host_lost(host);
  look_into_failure(host_loss(lost));
  nothing_left(host);
}

void Job::step() {
  std::optional<Deadline> next = earlier(earlier(end_.next_deadline(), output_.next_deadline()), timeout_);
  if (wants_servers()) next = earlier(next, servers_.next_deadline());
  if (epochs_) next = earlier(earlier(next, epochs_->next_deadline()), early_end_->next_deadline());
  loop_.run_once(next);
  check_time(Clock::now());
  send_due_signal();
}

void Job::check_time(TimePoint now) {
  const auto is_due = [now](std::optional<Deadline> deadline) { return deadline && now >= *deadline; };
  if (epochs_ && is_due(epochs_->next_deadline())) epochs_->on_time();
  if (is_due(servers_.next_deadline())) start_due_servers();
  output_.show_due(now);
  if (is_due(timeout_)) {
    timeout_.reset();
    stop_epochs();
    look_into_timeout();
  }
  if (early_end_) early_end_->check_time(now);
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
    if (signal == SIGCHLD || (early_end_ && early_end_->take_notice(signal))) continue;
    if (asks_to_end(signal)) {
      impatient_ = !processes_.any_left();
      stop_epochs();
      end_.interrupted(signal, Clock::now());
    }
    processes_.signal_ranks(signal == SIGTSTP ? SIGSTOP : signal);
    if (signal != SIGTSTP) continue;
    hosts_.pause(true);
    kill(getpid(), SIGSTOP);  // hvdrun stops here until SIGCONT
    hosts_.pause(false);
  }
  hosts_.collect_children();
}

void Job::look_into_failure(const std::string& cause) {
  if (at_failure_) return;
  at_failure_ = "";
  hosts_.set_failure(cause);
  status_->queries().ask(false, [this](const std::vector<StatusOfRank>& ranks) {
    at_failure_ = find_stragglers(ranks, Duration::zero());
  });
}

void Job::look_into_timeout() {
  status_->queries().ask(true, [this, is_first = !at_failure_](const std::vector<StatusOfRank>& ranks) {
    if (is_over()) return;  // the job has ended meanwhile
    if (is_first) at_failure_ = find_stragglers(ranks, Duration::zero());
    end_.timed_out(Clock::now());
  });
}

Failure Job::failure_of(int number) const {
  const JobProcess& process = processes_.at(number);
  return {.rank = number,
          .host = process.host_name,
          .is_process = epochs_ != nullptr,
          .pid = process.pid,
          .age = process.age,
          .stream = options_.output.merge_errors ? "output" : "standard error",
          .last_lines = output_.last_lines(number, kReportedLines)};
}

void Job::report() {
  const JobEnd::Reason reason = end_.reason();
  if (const auto& lost = end_.lost_hosts(); !lost.empty() && !end_.first_failed()) {
    output_.append(lost_host_report(lost, end_.ends()));
  } else if (const std::optional<int> rank = end_.first_failed()) {
    output_.append(failure_report(failure_of(*rank), end_.ends()));
  } else if (servers_.failed() && reason == JobEnd::Reason::server_failed) {
    const auto& [number, status] = *servers_.failed();
    Failure failure = failure_of(number);
    failure.rank = processes_.at(number).plan.server;
    failure.server_end = RankEnd{.status = status};
    output_.append(failure_report(failure, end_.ends()));
  } else if (reason == JobEnd::Reason::timed_out) {
    output_.append(timeout_report(end_.ends()));
  } else if (reason == JobEnd::Reason::ended_early) {
    output_.say("the job has ended early, as it was told: exit code " + std::to_string(kEndedEarlyCode));
  } else if (reason == JobEnd::Reason::interrupted) {
    output_.append(interruption_report(end_.interrupting_signal(), end_.ends()));
  }
  const bool blames_the_job = end_.first_failed() || !end_.lost_hosts().empty() ||
                              reason == JobEnd::Reason::server_failed || reason == JobEnd::Reason::timed_out;
  if (blames_the_job && at_failure_ && !at_failure_->empty()) output_.say("at that moment: " + *at_failure_);
  for (const auto& host : processes_.hosts()) {
    for (pid_t pid : host->list_left()) output_.say("process " + std::to_string(pid) + " could not be killed");
  }
}

bool Job::abandons_output() const {
  const JobEnd::Reason reason = end_.reason();
  const bool has_no_time = reason == JobEnd::Reason::interrupted || reason == JobEnd::Reason::timed_out;
  return impatient_ || (end_.gave_up() && (processes_.any_left() || has_no_time));
}

}  // namespace hvd::launcher
