#include "launcher/job/job.h"

#include <unistd.h>

#include <cmath>
#include <csignal>
#include <cstdio>
#include <utility>

#include "core/base/error.h"
#include "launcher/output/output_stream.h"
#include "launcher/plan/host_resources.h"
#include "launcher/watch/rank_status.h"

namespace hvd::launcher {
namespace {

constexpr Duration kTermNotice = 20s;  // from SIGTERM to the end; Slurm and Kubernetes kill after 30 s
constexpr Duration kSameNotice = 2s;
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
                     for (const auto& host : hosts_.hosts) host->hold(stream, on);
                   },
               .reader_left =
                   [this] {
                     stop_epochs();
                     end_.output_closed(Clock::now());
                   }}),
      server_places_(options_.servers, options_.elastic ? options_.elastic->num_proc : 0),
      next_server_number_(options_.elastic ? kFirstServer : size + options_.servers) {}

int Job::run(JobHosts hosts) {
  hosts_ = std::move(hosts);
  hosts_left_ = hosts_.hosts.size();
  hosts_.set_failure = [is_first = true, tell = std::move(hosts_.set_failure)](const std::string& cause) mutable {
    if (std::exchange(is_first, false)) tell(cause);
  };
  if (options_.elastic) take_slots();
  const std::vector<int> readers = open_ranks();
  status_.emplace(
      loop_, hosts_.plans, hosts_.hosts, [this](const std::string& line) { output_.say(line); }, options_.verbose);
  loop_.watch(signals_.fd(), EPOLLIN, [this] { on_signals(); });
  if (options_.elastic) {
    start_elastic();
  } else {
    for (std::size_t host = 0; host < hosts_.hosts.size(); ++host) hosts_.hosts[host]->start(hosts_.plans[host]);
  }
  if (hosts_.feeds_input) {
    input_ = std::make_unique<InputFeed>(loop_, STDIN_FILENO, readers, [this](int rank, std::string_view bytes) {
      hosts_.hosts[static_cast<std::size_t>(rank_at(rank).host)]->write_input(rank, bytes);
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

std::vector<int> Job::open_ranks() {
  std::vector<int> readers;
  std::vector<HostCount> hosts;
  for (std::size_t host = 0; host < hosts_.plans.size(); ++host) {
    for (const RankPlan& plan : hosts_.plans[host].ranks) {
      open_rank(static_cast<int>(host), plan);
      if (plan.reads_input) readers.push_back(plan.place.rank);
    }
    for (const RankPlan& plan : hosts_.plans[host].servers) {
      open_rank(static_cast<int>(host), plan);
      server_places_.started(plan.server, hosts_.plans[host].name, start_);
    }
    if (!options_.elastic) server_plans_.push_back(hosts_.plans[host].servers);
    hosts.emplace_back(hosts_.plans[host].name, 1);
  }
  if (!options_.elastic) server_places_.hosts_changed(hosts);
  return readers;
}

void Job::open_rank(int host, const RankPlan& plan) {
  const int number = plan.place.rank;
  const HostPlan& on_host = hosts_.plans[static_cast<std::size_t>(host)];
  const bool others_may_come = epochs_ && !on_host.rendezvous.address.empty();  // it has an agent
  const std::string host_name = hosts_.plans.size() < 2 && !others_may_come ? "" : on_host.name;
  const bool is_numbered = epochs_ && plan.server < 0;
  ranks_[number] = {.host = host,
                    .host_name = host_name,
                    .name = (is_numbered ? "process " + std::to_string(number) : process_name(plan)) +
                            (host_name.empty() ? "" : " on " + host_name),
                    .plan = plan};
  if (plan.server >= 0) running_servers_.insert(number);
  output_.open(plan);
}

// ---- Elastic jobs

// Hosts begin without ranks.
void Job::take_slots() {
  std::vector<HostPlan> plans = std::exchange(hosts_.plans, {});
  std::vector<std::unique_ptr<Host>> hosts = std::exchange(hosts_.hosts, {});
  hosts_left_ = 0;
  for (std::size_t host = 0; host < hosts.size(); ++host) add_host(std::move(plans[host]), std::move(hosts[host]));
}

void Job::add_host(HostPlan plan, std::unique_ptr<Host> host) {
  for (RankPlan& slot : plan.ranks) slot.reads_input = false;
  slots_.push_back(std::exchange(plan.ranks, {}));
  server_plans_.push_back(std::exchange(plan.servers, {}));
  ended_hosts_.insert(next_host());
  hosts_.plans.push_back(std::move(plan));
  hosts_.hosts.push_back(std::move(host));
}

void Job::start_elastic() {
  epochs_ = std::make_unique<Epochs>(
      *options_.elastic, *hosts_.elastic_store,
      Epochs::Callbacks{
          .start = [this](int process, const std::string& host, int slot) { start_process(process, host, slot); },
          .host_of = [this](int process) { return rank_at(process).host_name; },
          .say = [this](const std::string& line) { output_.say(line); },
          .over = [this](const EndJob& end, std::optional<int> culprit) { elastic_over(end, culprit); }});
  watch_allocation();
  status_->queries().use_places([this](int process) { return epochs_->place_of(process); });
  std::vector<HostCount> hosts;
  for (std::size_t host = 0; host < slots_.size(); ++host) {
    hosts.emplace_back(hosts_.plans[host].name, static_cast<int>(slots_[host].size()));
  }
  use_hosts(hosts);
}

void Job::use_hosts(const std::vector<HostCount>& hosts) {
  if (!epochs_) return;
  server_places_.hosts_changed(hosts);
  start_due_servers();
  epochs_->set_hosts(hosts);
}

std::size_t Job::host_named(const std::string& name) const {
  auto host = hosts_.plans.size() - 1;
  while (host > 0 && hosts_.plans[host].name != name) --host;
  return host;
}

void Job::start_process(int process, const std::string& host_name, int slot) {
  const std::size_t host = host_named(host_name);
  HostPlan& on_host = hosts_.plans[host];
  const std::vector<RankPlan>& slots = slots_[host];
  RankPlan plan = slots[static_cast<std::size_t>(slot) % slots.size()];
  plan.place.rank = process;
  end_.process_started();
  open_rank(static_cast<int>(host), plan);
  on_host.ranks.push_back(plan);
  if (ended_hosts_.erase(static_cast<int>(host)) > 0) ++hosts_left_;
  HostPlan alone = on_host;
  alone.ranks = {plan};
  alone.servers.clear();
  alone.stopped_limit = options_.stopped_limit;
  alone.preemption_script = options_.preemption_script;
  hosts_.hosts[host]->start(alone);
}

// Whether the others go on after the end of a process.
bool Job::goes_on_without(int rank, ExitStatus status, const JobEnding& said) {
  if (!epochs_ || epochs_->over()) return false;
  RankEnd end{.status = status, .said = said};
  // It named a rank of its epoch, whose process has another number.
  if (end.said.kind == JobEnding::Kind::consequence) end.said = {.in_job = true};
  std::erase_if(hosts_.plans[static_cast<std::size_t>(rank_at(rank).host)].ranks,
                [rank](const RankPlan& plan) { return plan.place.rank == rank; });
  end_.process_ended(rank, end);
  epochs_->process_ended(rank, end);
  server_places_.process_failed();
  start_due_servers();
  move_servers(rank_at(rank).host);
  return true;
}

void Job::watch_allocation() {
  const Environment environment = parse_environment(environ);
  if (!environment.contains("SLURM_JOB_ID") || options_.time_limit_margin <= Duration::zero()) return;
  allocation_ = std::make_unique<AllocationEnd>(
      loop_, signals_, environment, options_.time_limit_margin, kAllocationInterval,
      AllocationEnd::Callbacks{
          .known = [this](std::optional<TimePoint> limit, bool has_changed) { set_time_limit(limit, has_changed); },
          .complaint = [this](const std::string& line) { output_.say(line); }});
}

void Job::set_time_limit(std::optional<TimePoint> limit, bool has_changed) {
  if (early_end_ || epochs_->over()) return;
  time_limit_ = limit;
  if (!has_changed && !options_.verbose) return;
  if (!limit) return output_.say("the allocation's end was changed: it has none any more");
  const auto left = std::to_string(std::lround(seconds(*limit - Clock::now())));
  output_.say((has_changed ? "the allocation's end was changed: the job ends in "
                           : "the allocation ends: so the job does in ") +
              left + " s, if it is not finished");
}

void Job::child_ended(pid_t pid, ExitStatus status) {
  if (allocation_) allocation_->child_ended(pid, status);
}

void Job::elastic_over(const EndJob& end, std::optional<int> culprit) {
  if (end.early) return end_.ended_early(Clock::now());
  if (!end.failure.empty()) output_.say("the job has failed: " + end.failure);
  end_.elastic_over(!end.failure.empty(), culprit, Clock::now());
}

// Schedulers send SIGUSR1 some time before they end a job, if they are told to, and SIGTERM when they do. A second
// SIGTERM is an order, unless it is the same one: Slurm may send it to hvdrun and to the script that passes it on.
bool Job::is_notice(int signal) {
  if (!epochs_ || epochs_->over()) return false;
  if (signal != SIGTERM) return signal == SIGUSR1;
  const TimePoint now = Clock::now();
  return now < first_sigterm_.emplace(first_sigterm_.value_or(now)) + kSameNotice;
}

void Job::end_early(const std::string& cause, Duration limit) {
  if (!early_end_) output_.say(cause + ": the job ends at its next commit");
  early_end_ = earlier(early_end_, Clock::now() + limit);
  epochs_->end_early();
}

void Job::give_up_ending_early() {
  early_end_.reset();
  if (epochs_->over()) return;
  output_.say("the ranks have not come to a commit in time, and are ended");
  stop_epochs();
  end_.interrupted(SIGTERM, Clock::now());
}

// ---- Events

void Job::rank_started(int rank, pid_t pid) {
  rank_at(rank).pid = pid;
  if (!rank_at(rank).is_server()) ++started_;
  if (options_.verbose) {
    output_.say(rank_at(rank).name + " is process " + std::to_string(pid));
    if (started_ == size_ && !rank_at(rank).is_server() && !epochs_) say_age("all ranks are started");
  }
  if (!options_.report_bindings) return;
  const std::vector<int>& cpus = rank_at(rank).plan.cpus;
  output_.say(rank_at(rank).name + (cpus.empty() ? " is not bound" : " is bound to CPU " + format_cpu_list(cpus)));
}

void Job::rank_not_started(int rank, const std::string& cause, int exit_code) {
  const std::string text = rank_at(rank).name + " could not be started: " + cause;
  output_.say(text);
  if (epochs_ && rank_at(rank).is_server()) {
    output_.close(rank);
    return server_ended(rank, {.value = exit_code});
  }
  if (epochs_) {
    output_.close(rank);
    end_.process_ended(rank, {.status = {.value = exit_code}});
    return epochs_->process_not_started(rank, text);
  }
  hosts_.set_failure(text);
  for (const auto& [other, process] : ranks_) {
    if (process.host != rank_at(rank).host || process.pid >= 0) continue;
    output_.close(other);
    running_servers_.erase(other);
  }
  end_.start_failed(exit_code, Clock::now());
}

void Job::rank_ended(int rank, ExitStatus status, const JobEnding& said) {
  const TimePoint now = Clock::now();
  rank_at(rank).age = now - start_;
  if (rank_at(rank).is_server()) return server_ended(rank, status);
  if (input_) input_->forget(rank);
  ++ended_;
  if (!goes_on_without(rank, status, said)) end_.rank_ended(rank, status, said, now);
  if (end_.all_ranks_ended() && (!epochs_ || epochs_->over())) end_servers();
  if (const auto first = end_.first_failed()) {
    look_into_failure(rank_failure(*first, rank_at(*first).host_name, *end_.ends()[static_cast<std::size_t>(*first)]));
  }
  if (!options_.verbose) return;
  output_.say(rank_at(rank).name + " has ended: " +
              (status.by_signal ? signal_name(status.value) : "exit code " + std::to_string(status.value)));
  if (ended_ == size_ && !epochs_) say_age("all ranks have ended");
}

void Job::server_ended(int number, ExitStatus status) {
  running_servers_.erase(number);
  std::erase_if(hosts_.plans[static_cast<std::size_t>(rank_at(number).host)].servers,
                [number](const RankPlan& plan) { return plan.place.rank == number; });
  const Rank& server = rank_at(number);
  const std::string what = server.name + " (pid " + std::to_string(server.pid) + ") " + ending_text(status);
  if (options_.verbose) output_.say(what);
  // In an elastic job no server is done before all processes are.
  if (!wants_servers() || (status.ok() && !epochs_)) return;
  const TimePoint now = Clock::now();
  if (const auto again = server_places_.ended(server.plan.server, now)) {
    char delay[32] = "";
    if (*again > now) std::snprintf(delay, sizeof delay, " in %.2g s", seconds(*again - now));
    output_.say(what + "; it is started again" + delay);
    return start_due_servers();
  }
  failed_server_ = {number, status};
  stop_epochs();
  end_.server_failed(status, now);
  look_into_failure(what + ", after it was started again " + std::to_string(ServerPlaces::kMaxFailures) + " times");
}

void Job::start_due_servers() {
  if (!wants_servers()) return;
  for (const StartServer& start : server_places_.take_due(Clock::now())) start_server(start);
}

void Job::start_server(const StartServer& start) {
  const std::size_t host = host_named(start.host);
  RankPlan plan = *std::ranges::find(server_plans_[host], start.server, &RankPlan::server);
  plan.place.rank = next_server_number_++;
  plan.server_start = start.start;
  open_rank(static_cast<int>(host), plan);
  if (ended_hosts_.erase(static_cast<int>(host)) > 0) ++hosts_left_;
  HostPlan& on_host = hosts_.plans[host];
  on_host.servers.push_back(plan);
  HostPlan alone = on_host;
  alone.ranks.clear();
  alone.servers = {plan};
  alone.stopped_limit = options_.stopped_limit;
  alone.preemption_script = options_.preemption_script;
  hosts_.hosts[host]->start(alone);
}

// Ends the servers of a preempted host, so that they are started elsewhere, once its ranks have left: until then these
// may need them.
void Job::move_servers(int host) {
  const HostPlan& plan = hosts_.plans[static_cast<std::size_t>(host)];
  if (!wants_servers() || !plan.ranks.empty() || plan.servers.empty() || !server_places_.moves_from(plan.name)) return;
  hosts_.hosts[static_cast<std::size_t>(host)]->signal_ranks(SIGTERM);  // only servers are left
}

void Job::say_age(const std::string& event) {
  const auto age = std::chrono::round<std::chrono::milliseconds>(Clock::now() - start_).count();
  output_.say(event + ", " + std::to_string(age) + " ms after they were planned");
}

void Job::host_lost(int host, const std::string& cause) {
  std::vector<int> ranks, servers;
  for (const auto& [number, process] : ranks_) {
    if (process.host != host) continue;
    output_.close(number);
    if (!process.is_server()) ranks.push_back(number);
    const bool ran = running_servers_.erase(number) > 0;
    if (ran && !end_.all_ranks_ended()) servers.push_back(process.plan.server);
  }
  const LostHost lost{
      .name = hosts_.plans[static_cast<std::size_t>(host)].name, .ranks = ranks, .servers = servers, .cause = cause};
  if (epochs_ && !epochs_->over()) {
    bool had_ranks = false;
    for (const int rank : ranks) {
      if (end_.ends()[static_cast<std::size_t>(rank)]) continue;
      end_.process_ended(rank, {.status = {}, .lost = true});
      had_ranks = true;
    }
    hosts_.plans[static_cast<std::size_t>(host)].ranks.clear();
    hosts_.plans[static_cast<std::size_t>(host)].servers.clear();
    nothing_left(host);
    if (!had_ranks) complaint("host " + lost.name + " is lost, and had no ranks: " + cause);
    for (const int server : servers) {
      output_.say("server " + std::to_string(server) + " is lost with host " + lost.name + ": " + cause);
    }
    server_places_.host_lost(lost.name, Clock::now());
    epochs_->host_lost(lost.name, "host " + lost.name + " is lost: " + cause, had_ranks);
    return start_due_servers();
  }
  end_.host_lost(lost, Clock::now());
  status_->host_lost(host);
  look_into_failure(host_loss(lost));
  nothing_left(host);
}

void Job::host_preempted(int host) {
  if (!epochs_ || epochs_->over()) return;
  const std::string& name = hosts_.plans[static_cast<std::size_t>(host)].name;
  server_places_.host_preempted(name);
  epochs_->host_preempted(name);
  if (epochs_->ends_early()) end_early("all hosts are preempted", options_.elastic->elastic_timeout);
  move_servers(host);
}

void Job::step() {
  const std::optional<Deadline> membership = epochs_ ? epochs_->next_deadline() : std::nullopt;
  const std::optional<Deadline> servers = wants_servers() ? server_places_.next_deadline() : std::nullopt;
  const std::optional<Deadline> limits = earlier(earlier(earlier(timeout_, time_limit_), early_end_), servers);
  loop_.run_once(earlier(earlier(earlier(end_.next_deadline(), limits), output_.next_deadline()), membership));
  const TimePoint now = Clock::now();
  if (membership && now >= *membership) epochs_->on_time();
  if (servers && now >= *servers) start_due_servers();
  output_.show_due(now);
  if (timeout_ && now >= *timeout_) {
    timeout_.reset();
    stop_epochs();
    look_into_timeout();
  }
  if (time_limit_ && now >= *time_limit_) {
    time_limit_.reset();
    if (epochs_ && !epochs_->over())
      end_early("the time of the allocation is almost up", options_.elastic->elastic_timeout);
  }
  if (early_end_ && now >= *early_end_) give_up_ending_early();
  const std::optional<int> signal = end_.signal_due(Clock::now());
  if (!signal || hosts_left_ == 0) return;
  if (*signal == SIGTERM && end_.all_ranks_ended())
    output_.say(running_servers_.empty() ? "all ranks have ended; ending what they have left running"
                                         : "all ranks have ended; ending the servers, which have not");
  if (options_.verbose) output_.say("sending " + signal_name(*signal) + " to what is left");
  for (const auto& host : hosts_.hosts) {
    host->signal_all(*signal);
    host->signal_all(SIGCONT);  // a stopped process would not handle the signal
  }
}

void Job::on_signals() {
  // hvdrun's own signals first: a rank that was ended by the same Ctrl-C has not failed.
  for (const int signal : signals_.take()) {
    if (signal == SIGCHLD) continue;
    if (is_notice(signal)) {
      end_early("received " + signal_name(signal), signal == SIGTERM ? kTermNotice : options_.elastic->elastic_timeout);
      continue;
    }
    if (asks_to_end(signal)) {
      impatient_ = hosts_left_ == 0;
      stop_epochs();
      end_.interrupted(signal, Clock::now());
    }
    for (const auto& host : hosts_.hosts) host->signal_ranks(signal == SIGTSTP ? SIGSTOP : signal);
    if (signal != SIGTSTP) continue;
    hosts_.pause(true);
    kill(getpid(), SIGSTOP);  // hvdrun stops here until SIGCONT
    hosts_.pause(false);
  }
  hosts_.collect_children();
}

Failure Job::failure_of(int number) const {
  const Rank& process = ranks_.at(number);
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
  } else if (failed_server_ && reason == JobEnd::Reason::server_failed) {
    Failure failure = failure_of(failed_server_->first);
    failure.rank = rank_at(failed_server_->first).plan.server;
    failure.server_end = RankEnd{.status = failed_server_->second};
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
  for (const auto& host : hosts_.hosts) {
    for (pid_t pid : host->list_left()) output_.say("process " + std::to_string(pid) + " could not be killed");
  }
}

bool Job::abandons_output() const {
  const JobEnd::Reason reason = end_.reason();
  const bool has_no_time = reason == JobEnd::Reason::interrupted || reason == JobEnd::Reason::timed_out;
  return impatient_ || (end_.gave_up() && (hosts_left_ > 0 || has_no_time));
}

}  // namespace hvd::launcher
