// hvdrun on one host of a job: executes the commands of its parent there, and reports events to it.
// When the parent is gone, or has been silent for the lease, the agent ends its ranks and then exits. Runs on the main
// thread, in one event loop; gRPC has its own threads.
#include "launcher/remote/run_on_hosts.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/bootstrap/store_server.h"
#include "core/net/authentication.h"
#include "launcher/job/host.h"
#include "launcher/job/local_host.h"
#include "launcher/plan/host_plan.h"
#include "launcher/processes/event_loop.h"
#include "launcher/processes/supervisor.h"
#include "launcher/remote/grpc_link.h"
#include "launcher/remote/link.h"
#include "launcher/remote/messages.h"
#include "launcher/remote/store_relay.h"
#include "launcher/remote/subtree.h"
#include "launcher/watch/job_end.h"

namespace hvd::launcher {
namespace {

constexpr Duration kBootstrapTime = 30s;
constexpr int kOrphaned = 1;
constexpr std::size_t kMaxStatuses = std::size_t{8} << 20;  // bytes; further ranks are sent without stacks

std::size_t index_of(Stream stream) { return stream == Stream::output ? 0 : 1; }

// The message that `fill` completes.
proto::FromAgent message_with(const auto& fill) {
  proto::FromAgent message;
  fill(message);
  return message;
}

// The counterpart of AgentHost: performs the parent's commands on this host, and reports the host's events.
class ReportingHost : private HostListener {
 public:
  // `send` sends a message to the parent; it does nothing once the parent is lost.
  ReportingHost(EventLoop& loop, const SignalSource& signals, Supervisor& supervisor, int number,
                std::function<void(proto::FromAgent)> send)
      : send_(std::move(send)), host_(loop, signals, supervisor, *this, number, FileDescriptor()) {}

  // Completes the plan with what is known only on this host. `store`: the address that its ranks connect to.
  void start(HostPlan plan, const std::string& store) {
    const Environment own = parse_environment(environ);
    std::set<std::size_t> used;
    for (const std::vector<RankPlan>* processes : {&plan.ranks, &plan.servers}) {
      for (const RankPlan& process : *processes) used.insert(process.program);
    }
    for (std::size_t i = 0; i < plan.programs.size(); ++i) {
      ProgramPlan& program = plan.programs[i];
      program.environment = environment_on_host(program.environment, own);
      if (!used.contains(i)) continue;  // it need not be on this host
      program.file =
          find_program(program.working_directory, program.arguments.front(), search_path_of(with_exports(program)));
    }
    plan.rendezvous.store = store;
    started_ = true;
    nothing_left_ = false;
    host_.start(plan);
  }

  void cannot_start(int rank, const std::string& cause, int exit_code) {
    const bool nothing_runs = is_idle();
    started_ = true;
    rank_not_started(rank, cause, exit_code);
    if (nothing_runs) nothing_left(0);
  }

  void perform(const proto::ToAgent& command) {
    if (command.has_input()) {
      host_.write_input(command.input().rank(), command.input().bytes());
    } else if (command.has_query_status()) {
      host_.query_status(command.query_status().id(), command.query_status().with_stacks());
    } else if (command.has_signal() && command.signal().everything()) {
      host_.signal_all(command.signal().signal());
    } else if (command.has_signal()) {
      host_.signal_ranks(command.signal().signal());
    } else if (command.has_output_consumed()) {
      const Stream stream = command.output_consumed().errors() ? Stream::errors : Stream::output;
      std::size_t& in_flight = in_flight_[index_of(stream)];
      in_flight -= std::min<std::size_t>(in_flight, command.output_consumed().bytes());
      if (in_flight < kOutputWindow) host_.hold(stream, false);
    }
  }

  void signal_all(int signal) {
    if (started_) host_.signal_all(signal);
  }

  // The parent is lost, and the ranks' output with it; it is still read, so that they do not block and can end.
  void abandon_output() {
    is_abandoned_ = true;
    host_.hold(Stream::output, false);
    host_.hold(Stream::errors, false);
  }

  // See LocalHost.
  void collect(const std::function<void(pid_t, ExitStatus)>& others) { host_.collect(others); }

  void announce_preemption() { host_preempted(0); }

  bool was_started() const { return started_; }
  // No process of the job is left here, or none was started.
  bool is_idle() const { return !started_ || nothing_left_; }
  // The ranks are gone with the supervisor: the parent sends nothing more for this host.
  bool is_lost() const { return lost_; }

 private:
  void rank_started(int rank, pid_t pid) override {
    proto::FromAgent message;
    message.mutable_rank_started()->set_rank(rank);
    message.mutable_rank_started()->set_pid(pid);
    send_(std::move(message));
  }

  void rank_not_started(int rank, const std::string& cause, int exit_code) override {
    proto::FromAgent message;
    message.mutable_rank_not_started()->set_rank(rank);
    message.mutable_rank_not_started()->set_cause(cause);
    message.mutable_rank_not_started()->set_exit_code(exit_code);
    send_(std::move(message));
  }

  void rank_wrote(int rank, Stream stream, std::string_view bytes) override {
    proto::FromAgent message;
    message.mutable_output()->set_rank(rank);
    message.mutable_output()->set_errors(stream == Stream::errors);
    message.mutable_output()->set_bytes(bytes.data(), bytes.size());
    send_(std::move(message));
    std::size_t& in_flight = in_flight_[index_of(stream)];
    in_flight += bytes.size();
    if (!is_abandoned_ && in_flight >= kOutputWindow) host_.hold(stream, true);
  }

  void input_consumed(int rank) override {
    send_(message_with([&](auto& message) { message.mutable_input_consumed()->set_rank(rank); }));
  }

  void rank_ended(int rank, ExitStatus status, const JobEnding& said) override {
    send_(message_with([&](auto& message) { *message.mutable_rank_ended() = to_message(rank, status, said); }));
  }

  void nothing_left(int) override {
    nothing_left_ = true;
    send_(message_with([&](auto& message) { message.mutable_nothing_left(); }));
  }

  void host_lost(int, const std::string& cause) override {
    lost_ = true;
    send_(message_with([&](auto& message) { message.mutable_lost()->set_cause(cause); }));
  }

  void host_preempted(int) override {
    if (std::exchange(is_preempted_, true)) return;
    send_(message_with([&](auto& message) { message.mutable_preempted(); }));
  }

  void warning(const std::string& line) override {
    send_(message_with([&](auto& message) { message.mutable_warning()->set_line(line); }));
  }

  void statuses(int, std::uint64_t query_id, std::vector<RankStatus> statuses) override {
    proto::FromAgent message;
    message.mutable_statuses()->set_id(query_id);
    std::size_t bytes = 0;
    for (RankStatus& status : statuses) {
      if (bytes > kMaxStatuses) status.stack.clear();
      bytes += (*message.mutable_statuses()->add_statuses() = to_message(status)).ByteSizeLong();
    }
    send_(std::move(message));
  }

  void initialized(int) override {
    send_(message_with([&](auto& message) { message.mutable_initialized(); }));
  }

  void stalled(int, bool on) override {
    send_(message_with([&](auto& message) { message.mutable_stalled()->set_on(on); }));
  }

  const std::function<void(proto::FromAgent)> send_;
  LocalHost host_;
  bool started_ = false, nothing_left_ = false, lost_ = false, is_abandoned_ = false, is_preempted_ = false;
  std::size_t in_flight_[2] = {0, 0};  // per stream: bytes sent to the parent and not yet acknowledged
};

class Agent {
 public:
  // Connects to the parent. Throws Error if that fails. `exits_when_preempted`: it ends when this host is preempted and
  // its ranks have left.
  Agent(const proto::Bootstrap& bootstrap, bool exits_when_preempted, SignalSource& signals, Supervisor& supervisor)
      : bootstrap_(bootstrap),
        exits_when_preempted_(exits_when_preempted),
        options_(agent_options_of(bootstrap)),
        signals_(signals),
        supervisor_(supervisor),
        log_("hvdrun agent", LogLevel::warning),
        lease_(options_.lease, Clock::now()),
        timer_(loop_, [this] { on_time(); }),
        store_([this](std::uint64_t id, const StoreRequest& request) {
          send(message_with([&](auto& message) { *message.mutable_store_request() = to_message(id, request); }));
        }),
        host_(loop_, signals_, supervisor_, static_cast<int>(bootstrap.host()),
              [this](proto::FromAgent message) { send(std::move(message)); }) {
    const Deadline deadline = deadline_after(options_.start_timeout);
    std::vector<Address> addresses;
    for (const std::string& address : bootstrap.addresses()) addresses.push_back(Address::parse(address));
    parent_address_ = find_parent(addresses, deadline);
    const Certificate certificate{.certificate = bootstrap.certificate(), .key = bootstrap.key()};
    parent_ = connect_to_parent(loop_, certificate, parent_address_.parent, deadline);
    parent_->listen({.received = [this](const proto::ToAgent& message) { on_message(message); },
                     .lost = [this](const std::string& cause) { on_parent_lost(cause); }});
    lease_ = LinkLease(options_.lease, Clock::now());
    loop_.watch(signals_.fd(), EPOLLIN, [this] { on_signals(); });
  }

  ~Agent() {
    loop_.forget(signals_.fd());
    if (server_ != nullptr) loop_.forget(server_->fd());
  }

  // Returns the exit code when the parent has dismissed the agent or is lost, and nothing is left to end.
  int run() {
    say_hello();
    set_timer();
    while (!finished()) loop_.run_once(std::nullopt);
    if (parent_ == nullptr) return kOrphaned;
    if (!dismissed_ && has_left()) {
      send(message_with([](auto& message) { message.mutable_lost()->set_cause("it was preempted"); }));
    }
    // Stays until the parent has read all: a write of the parent to a connection that is closed already would make it
    // drop what it has not read yet.
    dismissed_ = false;
    send(message_with([&](auto& message) { message.mutable_goodbye(); }));
    const Deadline deadline = deadline_after(options_.grace + 1s);
    while (parent_ != nullptr && !dismissed_ && Clock::now() < deadline) loop_.run_once(deadline);
    return 0;
  }

 private:
  void say_hello() {
    proto::FromAgent message;
    *message.mutable_hello() = local_hello();
    if (!options_.interfaces.empty()) {
      parent_address_.local_address =
          addresses_of(local_addresses(), options_.interfaces, kNetworkInterfaceOption).front();
    }
    message.mutable_hello()->set_local_address(parent_address_.local_address);
    message.mutable_hello()->set_reserved_port(reserved_port_.emplace().number());
    message.mutable_hello()->set_parent_address(parent_address_.parent.host);
    send(std::move(message));
  }

  void send(proto::FromAgent message) {
    if (parent_ == nullptr) return;
    message.set_host(bootstrap_.host());
    parent_->send(std::move(message));
  }

  void on_message(const proto::ToAgent& message) {
    lease_.received(Clock::now());
    if (message.has_heartbeat()) return;
    if (message.host() != bootstrap_.host()) {
      if (subtree_ != nullptr) subtree_->send(message);
    } else if (message.has_children()) {
      start_children(message.children());
    } else if (message.has_start()) {
      start_ranks(message.start());
    } else if (message.has_goodbye()) {
      dismissed_ = true;
    } else if (message.has_store_response()) {
      const proto::StoreResponse& answer = message.store_response();
      store_.answered(answer.id(), static_cast<StatusCode>(answer.code()), answer.text());
    } else if (message.has_pause()) {
      lease_.pause(message.pause().on(), Clock::now());
      set_timer();
    } else {
      host_.perform(message);
    }
  }

  void start_children(const proto::Children& children) {
    const auto forward = [this](const proto::FromAgent& message) {
      if (parent_ != nullptr) parent_->send(message);
    };
    subtree_ = std::make_unique<Subtree>(
        loop_, signals_, store_,
        Subtree::Options{.certificate = {.certificate = bootstrap_.certificate(), .key = bootstrap_.key()},
                         .addresses = {parent_address_.local_address},
                         .agents = options_},
        Subtree::Listener{.received = forward,
                          .lost =
                              [forward](int host, const std::string& cause) {
                                proto::FromAgent message;
                                message.set_host(static_cast<std::uint32_t>(host));
                                message.mutable_lost()->set_cause(cause);
                                forward(message);
                              },
                          .started = [this](pid_t pid) { supervisor_.leave_alone(pid); },
                          .warning =
                              [this](const std::string& line) {
                                proto::FromAgent message;
                                message.mutable_warning()->set_line(line);
                                send(std::move(message));
                              }});
    std::vector<Subtree::Child> list;
    for (const proto::Child& child : children.children()) {
      list.push_back(
          {.host = static_cast<int>(child.host()), .name = child.name(), .start_command = child.start_command()});
    }
    subtree_->start(list);
  }

  void start_ranks(const proto::Start& start) {
    const bool has_ranks = start.ranks_size() > 0;
    if (!has_ranks && start.servers_size() == 0) return;
    if (has_ranks && host_.was_started() && !start.is_elastic()) return;
    is_elastic_ = start.is_elastic();
    const int first = has_ranks ? start.ranks(0).rank() : start.servers(0).rank();
    if (first != 0 && (has_ranks || !host_.was_started())) reserved_port_.reset();
    try {
      const HostPlan plan = from_message(start);
      if (server_ == nullptr) serve(JobKey::from_hex(plan.rendezvous.job_key_hex));
      host_.start(plan, server_->address().to_string());
    } catch (const ProgramUnusable& error) {
      host_.cannot_start(first, error.what(), error.exit_code());
    } catch (const Error& error) {
      host_.cannot_start(first, error.what(), 1);
    }
  }

  void serve(const JobKey& key) {
    server_ = std::make_unique<StoreServer>(key, "127.0.0.1", store_, log_);
    loop_.watch(server_->fd(), EPOLLIN, [this] { server_->serve_now(); });
    supervisor_.set_lease(options_.lease);
  }

  void on_parent_lost(const std::string& cause) {
    parent_.reset();
    lease_.pause(true, Clock::now());  // from now on, beats only renew the supervisor's lease
    store_.lost(cause);
    subtree_.reset();  // its agents detect that, and do the same
    end_.emplace(0, options_.grace);
    end_->interrupted(SIGTERM, Clock::now());
    host_.abandon_output();
    set_timer();
  }

  void on_signals() {
    for (const int signal : signals_.take()) {
      if (parent_ == nullptr) continue;
      const bool is_first_sigterm = signal == SIGTERM && is_elastic_ && !std::exchange(had_notice_, true);
      if (is_first_sigterm || (signal == SIGUSR1 && is_elastic_)) {
        host_.announce_preemption();
      } else if (asks_to_end(signal)) {
        on_parent_lost("this agent was told to end by " + signal_name(signal));
      }
    }
    host_.collect([this](pid_t pid, ExitStatus status) {
      if (subtree_ != nullptr) subtree_->child_ended(pid, status);
    });
  }

  void on_time() {
    const TimePoint now = Clock::now();
    if (parent_ != nullptr && lease_.has_expired(now)) on_parent_lost("no heartbeat");
    if (lease_.beat_is_due(now)) {
      supervisor_.renew_lease();
      send(message_with([&](auto& message) { message.mutable_heartbeat(); }));
    }
    if (end_) {
      if (const std::optional<int> signal = end_->signal_due(now)) {
        host_.signal_all(*signal);
        host_.signal_all(SIGCONT);
      }
    }
    set_timer();
  }

  void set_timer() { timer_.set(earlier(lease_.next_deadline(), end_ ? end_->next_deadline() : std::nullopt)); }

  bool finished() const {
    if (end_ && end_->gave_up()) return true;
    const bool is_to_end = dismissed_ || host_.is_lost() || end_ || has_left();
    return is_to_end && host_.is_idle() && (subtree_ == nullptr || subtree_->empty());
  }

  bool has_left() const { return exits_when_preempted_ && had_notice_ && host_.was_started() && host_.is_idle(); }

  const proto::Bootstrap bootstrap_;
  const bool exits_when_preempted_;
  const AgentOptions options_;
  SignalSource& signals_;
  Supervisor& supervisor_;
  EventLoop loop_;
  const Log log_;
  ParentAddress parent_address_;
  std::optional<ReservedPort> reserved_port_;  // empty: rank 0 runs on another host
  std::unique_ptr<LinkToParent> parent_;       // null: lost
  LinkLease lease_;
  Timer timer_;
  StoreRelay store_;
  std::unique_ptr<Subtree> subtree_;     // the agents that this one has started; null: none
  std::unique_ptr<StoreServer> server_;  // the ranks' connections to the store
  ReportingHost host_;
  bool dismissed_ = false;
  bool is_elastic_ = false;    // the job
  bool had_notice_ = false;    // a first SIGTERM
  std::optional<JobEnd> end_;  // after the loss of the parent: ends this host's ranks
};

}  // namespace

int run_agent(SignalSource& signals, bool exits_when_preempted) {
  Supervisor supervisor(signals);
  proto::Bootstrap bootstrap = read_bootstrap(STDIN_FILENO, deadline_after(kBootstrapTime));
  bootstrap.set_host(node_of(bootstrap, std::getenv("SLURMD_NODENAME")));
  return Agent(bootstrap, exits_when_preempted, signals, supervisor).run();
}

}  // namespace hvd::launcher
