#include "launcher/job/local_host.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "core/base/error.h"
#include "core/base/process.h"
#include "core/net/endpoint.h"
#include "launcher/plan/host_plan.h"
#include "launcher/plan/host_resources.h"

namespace hvd::launcher {
namespace {

// Binds for both families if the host has IPv6, else for IPv4.
FileDescriptor bind_any_port() {
  const int on = 1;
  FileDescriptor both(socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in6 any6{
      .sin6_family = AF_INET6, .sin6_port = 0, .sin6_flowinfo = 0, .sin6_addr = {}, .sin6_scope_id = 0};
  if (both && setsockopt(both.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
      bind(both.get(), reinterpret_cast<const sockaddr*>(&any6), sizeof any6) == 0) {
    return both;
  }
  FileDescriptor ipv4(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const sockaddr_in any4{.sin_family = AF_INET, .sin_port = 0, .sin_addr = {}, .sin_zero = {}};
  if (!ipv4 || setsockopt(ipv4.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) != 0 ||
      bind(ipv4.get(), reinterpret_cast<const sockaddr*>(&any4), sizeof any4) != 0) {
    throw_errno("cannot reserve a port");
  }
  return ipv4;
}

Environment environment_of(const HostPlan& plan, const RankPlan& rank, const RankMemory* memory) {
  const ProgramPlan& program = plan.programs[rank.program];
  Environment environment = environment_of_rank(plan, rank, with_exports(program));
  if (rank.cpus.empty()) share_openmp_threads(environment, rank.numbers.local_size, allowed_cpu_numbers().size());
  if (!rank.visible_gpus.empty()) environment["CUDA_VISIBLE_DEVICES"] = rank.visible_gpus;
  environment.erase("HVD_FLIGHT_RECORDER");  // set if hvdrun was itself started by an hvdrun
  environment.erase("HVD_FLIGHT_STACKS");
  if (memory == nullptr) return environment;
  for (const auto& [name, value] : memory->variables()) environment[name] = value;
  return environment;
}

}  // namespace

ReservedPort::ReservedPort() : socket_(bind_any_port()), number_(local_endpoint(socket_.get()).port()) {}

std::uint16_t ReservedPort::number() const { return number_; }

LocalHost::LocalHost(EventLoop& loop, const SignalSource& signals, Supervisor& supervisor, HostListener& listener,
                     int number, FileDescriptor input)
    : loop_(loop),
      signals_(signals),
      supervisor_(supervisor),
      listener_(listener),
      number_(number),
      input_(std::move(input)),
      memories_(loop, listener, number),
      stopped_timer_(loop, [this] { look_for_stopped(); }) {
  loop_.watch(supervisor_.fd(), EPOLLIN, [this] { on_supervisor(); });
}

LocalHost::~LocalHost() { loop_.forget(supervisor_.fd()); }

void LocalHost::start(const HostPlan& plan) {
  ChildStart start;
  nothing_left_ = false;
  raise_open_files();
  const auto readers = std::ranges::count_if(plan.ranks, &RankPlan::reads_input);
  const FileDescriptor nothing(open("/dev/null", O_RDONLY | O_CLOEXEC));
  std::vector<RankPlan> all = plan.ranks;
  all.insert(all.end(), plan.servers.begin(), plan.servers.end());
  for (const RankPlan& rank : all) {
    try {
      if (&rank == &all.front()) {
        check_open_files(all.size(), static_cast<std::size_t>(readers), plan.merge_errors);
      }
      start_rank_of(plan, rank, start, nothing.get());
    } catch (const ProgramUnusable& error) {
      listener_.rank_not_started(rank.numbers.rank, error.what(), error.exit_code());
      break;
    } catch (const Error& error) {
      listener_.rank_not_started(rank.numbers.rank, error.what(), 1);
      break;
    }
  }
  input_.reset();
  if (plan.is_elastic && !started_) supervisor_.end_groups();
  started_ = true;
  is_elastic_ = plan.is_elastic;
  stopped_limit_ = plan.stopped_limit;
  if (stopped_limit_ > Duration::zero()) look_for_stopped();
  if (!plan.preemption_script.empty()) watch_preemption(plan.preemption_script);
  const bool has_others = plan.is_elastic || plan.servers_of_job > 0;
  if (!all.empty() && (has_others || all.front().numbers.size > 1)) memories_.watch_for_stalls();
  if (plan.verbose && !plan.ranks.empty()) memories_.watch_initialization();
  take_reports();
}

void LocalHost::signal_ranks(int signal) {
  if (signal == SIGSTOP || signal == SIGCONT) is_suspended_ = signal == SIGSTOP;
  supervisor_.signal_ranks(signal);
}

void LocalHost::signal_all(int signal) {
  if (!nothing_left_) supervisor_.signal_all(signal);
}

void LocalHost::write_input(int rank, std::string_view bytes) {
  const auto found = pipes_.find(rank);
  if (found != pipes_.end() && found->second.input) found->second.input->write(bytes);
}

void LocalHost::hold(Stream stream, bool on) {
  for (auto& [rank, pipes] : pipes_) {
    OutputPipe* const pipe = stream == Stream::output ? pipes.output.get() : pipes.errors.get();
    if (pipe != nullptr) pipe->hold(on);
  }
}

void LocalHost::query_status(std::uint64_t query_id, bool with_stacks) { memories_.query(query_id, with_stacks); }

std::vector<pid_t> LocalHost::list_left() const { return supervisor_.list_left(); }

void LocalHost::start_rank_of(const HostPlan& plan, const RankPlan& rank, ChildStart& start, int nothing) {
  const ProgramPlan& program = plan.programs[rank.program];
  start.program = program.file;
  start.arguments = program.arguments;
  start.working_directory = program.working_directory;
  start.cpus = rank.cpus;
  const int number = rank.numbers.rank;
  const RankMemory* const memory = memories_.make(rank, plan.verbose);
  start.inherited.clear();
  for (const int fd : memory != nullptr ? memory->descriptors() : std::vector<int>()) {
    start.inherited.push_back({.fd = fd, .number = fd});
  }
  start.environment = to_entries(environment_of(plan, rank, memory));
  auto [input_reader, input_writer] =
      rank.reads_input && !input_ ? make_pipe() : std::pair<FileDescriptor, FileDescriptor>();
  start.standard_input = input_reader ? input_reader.get() : rank.reads_input ? input_.get() : nothing;
  auto [output_reader, output_writer] = make_pipe();
  auto [error_reader, error_writer] = plan.merge_errors ? std::pair<FileDescriptor, FileDescriptor>() : make_pipe();
  start.standard_output = output_writer.get();
  start.standard_error = error_writer ? error_writer.get() : output_writer.get();
  const pid_t pid = supervisor_.start(number, start);
  memories_.started(number, pid);
  listener_.rank_started(number, pid);
  Pipes& pipes = pipes_[number];
  pipes.pid = pid;
  pipes.name = rank.server < 0 ? "process " + std::to_string(number) : process_name(rank);
  if (input_writer) {
    pipes.input = std::make_unique<InputPipe>(loop_, std::move(input_writer),
                                              [this, number] { listener_.input_consumed(number); });
  }
  const auto reader = [&](FileDescriptor pipe, Stream stream) {
    return std::make_unique<OutputPipe>(loop_, std::move(pipe), [this, number, stream](std::string_view bytes) {
      listener_.rank_wrote(number, stream, bytes);
    });
  };
  pipes.output = reader(std::move(output_reader), Stream::output);
  if (error_reader) pipes.errors = reader(std::move(error_reader), Stream::errors);
}

void LocalHost::on_supervisor() {
  if (!signals_.pending()) take_reports();
}

void LocalHost::take_reports() {
  if (!supervisor_.receive()) loop_.forget(supervisor_.fd());
  for (const Supervisor::Ended& ended : supervisor_.take_ended()) {
    stopped_since_.erase(ended.rank);
    pipes_[ended.rank].pid = -1;
    const JobEnding said = memories_.ended(ended.rank);
    if (is_elastic_ || memories_.is_server(ended.rank)) memories_.forget(ended.rank);
    listener_.rank_ended(ended.rank, ended.status, said);
  }
  if (started_) look_what_is_left();
}

void LocalHost::watch_preemption(const std::string& script) {
  if (preemption_ != nullptr) return;  // since earlier processes were started
  const auto warn = [this](const std::string& line) { listener_.warning(line); };
  preemption_ = std::make_unique<PreemptionWatch>(
      loop_, signals_, script, kPreemptionInterval,
      PreemptionWatch::Callbacks{.preempted = [this] { listener_.host_preempted(number_); }, .warning = warn});
}

void LocalHost::look_for_stopped() {
  const TimePoint now = Clock::now();
  for (const auto& [rank, pipes] : pipes_) {
    const auto process = pipes.pid > 0 ? read_process_stat(pipes.pid) : std::nullopt;
    if (is_suspended_ || !process || !process->stopped) {
      stopped_since_.erase(rank);
    } else if (now >= stopped_since_.try_emplace(rank, now).first->second + stopped_limit_) {
      listener_.warning(pipes.name + " was stopped for longer than --stopped-limit, and is killed");
      supervisor_.kill_rank(pipes.pid);
      stopped_since_.erase(rank);
    }
  }
  stopped_timer_.set(now + std::min(stopped_limit_ / 4, Duration(1s)));
}

void LocalHost::collect(const std::function<void(pid_t, ExitStatus)>& others) {
  supervisor_.resume();  // SIGCHLD may also mean that it was stopped
  for (const auto& [pid, status] : reap_children()) {
    if (pid == supervisor_.pid()) {
      on_supervisor_lost(status);
    } else {
      if (preemption_ != nullptr) preemption_->child_ended(pid, status);
      others(pid, status);
    }
  }
}

// The ranks are killed with the supervisor, which is not their own failure: reports the host as lost.
void LocalHost::on_supervisor_lost(ExitStatus status) {
  take_reports();
  preemption_.reset();
  loop_.forget(supervisor_.fd());
  const std::string name = std::string(kSupervisorName) + " (process " + std::to_string(supervisor_.pid()) + ")";
  const bool all_gone = supervisor_.kill_orphans();
  if (nothing_left_) return;
  nothing_left_ = true;
  close_pipes();
  for (const auto& [rank, pipes] : pipes_) memories_.ended(rank);
  listener_.host_lost(number_, name + ", which starts the ranks there and ends with them, " + ending_text(status) +
                                   (all_gone ? "" : "; not everything could be killed"));
  listener_.nothing_left(number_);
}

void LocalHost::look_what_is_left() {
  if (nothing_left_ || supervisor_.any_left()) return;
  nothing_left_ = true;
  close_pipes();
  listener_.nothing_left(number_);
}

void LocalHost::close_pipes() {
  for (auto& [rank, pipes] : pipes_) {
    pipes.output->close_when_empty();
    if (pipes.errors) pipes.errors->close_when_empty();
  }
}

}  // namespace hvd::launcher
