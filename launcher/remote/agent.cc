#include "launcher/remote/agent.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>

#include "core/base/error.h"
#include "core/net/authentication.h"
#include "launcher/plan/host_plan.h"
#include "launcher/remote/grpc_link.h"
#include "launcher/remote/messages.h"

namespace hvd::launcher {
namespace {

constexpr int kOrphaned = 1;
constexpr std::size_t kMaxStatuses = std::size_t{8} << 20;  // bytes; further ranks are sent without stacks

Duration duration_of(double seconds) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

std::size_t index_of(Stream stream) { return stream == Stream::output ? 0 : 1; }

// Completes hvdrun's plan with what is known only on this host: its environment, and the path of the program.
HostPlan complete(HostPlan plan) {
  const Environment own = parse_environment(environ);
  for (ProgramPlan& program : plan.programs) {
    program.environment = environment_on_host(program.environment, own);
    program.file =
        find_program_from(program.working_directory, program.arguments.front(), search_path_of(with_exports(program)));
  }
  return plan;
}

}  // namespace

Agent::Agent(const proto::Bootstrap& bootstrap, SignalSource& signals, Keeper& keeper)
    : bootstrap_(bootstrap),
      lease_length_(duration_of(bootstrap.lease_seconds())),
      grace_(duration_of(bootstrap.grace_seconds())),
      signals_(signals),
      keeper_(keeper),
      log_("hvdrun agent", LogLevel::warning),
      lease_(lease_length_, Clock::now()),
      timer_(loop_, [this] { on_time(); }),
      store_([this](std::uint64_t id, const StoreRequest& request) { ask_parent(id, request); }),
      host_(loop_, signals_, keeper_, *this, static_cast<int>(bootstrap.host()), FileDescriptor()) {
  const Deadline deadline = deadline_after(duration_of(bootstrap.start_seconds()));
  std::vector<Address> addresses;
  for (const std::string& address : bootstrap.addresses()) addresses.push_back(Address::parse(address));
  const Way way = find_parent(addresses, deadline);
  local_address_ = way.local_address;
  parent_address_ = way.parent.host;
  const Certificate certificate{.certificate = bootstrap.certificate(), .key = bootstrap.key()};
  parent_ = connect_to_parent(loop_, certificate, way.parent, deadline);
  parent_->listen({.received = [this](const proto::ToAgent& message) { on_message(message); },
                   .lost = [this](const std::string& cause) { on_parent_lost(cause); }});
  lease_ = LinkLease(lease_length_, Clock::now());
  loop_.watch(signals_.fd(), EPOLLIN, [this] { on_signals(); });
}

Agent::~Agent() {
  loop_.forget(signals_.fd());
  if (server_ != nullptr) loop_.forget(server_->fd());
}

int Agent::run() {
  say_hello();
  set_timer();
  while (!finished()) loop_.run_once(std::nullopt);
  if (parent_ == nullptr) return kOrphaned;
  proto::FromAgent farewell;
  farewell.mutable_farewell();
  send(std::move(farewell));
  const Deadline deadline = deadline_after(grace_ + 1s);
  while (parent_ != nullptr && !parent_->all_sent() && Clock::now() < deadline) loop_.run_once(deadline);
  return 0;
}

bool Agent::finished() const {
  const bool children_are_gone = subtree_ == nullptr || subtree_->empty();
  const bool ranks_are_gone = !told_to_start_ || nothing_left_;
  if (end_ && end_->gave_up()) return true;
  return (dismissed_ || end_) && ranks_are_gone && children_are_gone;
}

void Agent::say_hello() {
  proto::FromAgent message;
  *message.mutable_hello() = local_hello();
  std::vector<std::string> interfaces(bootstrap_.interfaces().begin(), bootstrap_.interfaces().end());
  if (!interfaces.empty()) local_address_ = addresses_of(local_addresses(), interfaces).front();
  message.mutable_hello()->set_local_address(local_address_);
  message.mutable_hello()->set_reserved_port(reserved_port_.emplace().number());
  message.mutable_hello()->set_parent_address(parent_address_);
  send(std::move(message));
}

void Agent::send(proto::FromAgent message) {
  if (parent_ == nullptr) return;
  message.set_host(bootstrap_.host());
  parent_->send(std::move(message));
}

void Agent::on_message(const proto::ToAgent& message) {
  lease_.heard(Clock::now());
  if (message.has_beat()) return;
  if (message.host() == bootstrap_.host()) return on_local_message(message);
  if (subtree_ != nullptr) subtree_->send(message);
}

void Agent::on_local_message(const proto::ToAgent& message) {
  if (message.has_children()) return start_children(message.children());
  if (message.has_start()) return start_ranks(message.start());
  if (message.has_output_taken()) {
    return on_taken(message.output_taken().errors() ? Stream::errors : Stream::output, message.output_taken().bytes());
  }
  if (message.has_farewell()) {
    dismissed_ = true;
  } else if (message.has_input()) {
    host_.write_input(message.input().rank(), message.input().bytes());
  } else if (message.has_store_answer()) {
    const proto::StoreAnswer& answer = message.store_answer();
    store_.answered(answer.id(), static_cast<StatusCode>(answer.code()), answer.text());
  } else if (message.has_pause()) {
    lease_.pause(message.pause().on(), Clock::now());
    set_timer();
  } else if (message.has_query_status()) {
    host_.query_status(message.query_status().id(), message.query_status().with_stacks());
  } else if (message.has_signal()) {
    const proto::Signal& signal = message.signal();
    if (signal.everything()) {
      host_.signal_all(signal.signal());
    } else {
      host_.signal_ranks(signal.signal());
    }
  }
}

void Agent::start_children(const proto::Children& children) {
  Subtree::Options options;
  options.certificate = {.certificate = bootstrap_.certificate(), .key = bootstrap_.key()};
  options.addresses = {local_address_};
  options.interfaces.assign(bootstrap_.interfaces().begin(), bootstrap_.interfaces().end());
  options.lease = lease_length_;
  options.grace = grace_;
  options.start_timeout = duration_of(bootstrap_.start_seconds());
  subtree_ = std::make_unique<Subtree>(
      loop_, signals_, store_, std::move(options),
      Subtree::Listener{.received =
                            [this](const proto::FromAgent& message) {
                              if (parent_ != nullptr) parent_->send(message);
                            },
                        .lost = [this](int host, const std::string& cause) { host_lost(host, cause); },
                        .started = [this](pid_t pid) { keeper_.leave_alone(pid); },
                        .complaint = [this](const std::string& line) { complaint(line); }});
  std::vector<Subtree::Child> list;
  for (const proto::Child& child : children.children()) {
    list.push_back(
        {.host = static_cast<int>(child.host()), .name = child.name(), .start_command = child.start_command()});
  }
  subtree_->start(list);
}

void Agent::start_ranks(const proto::Start& start) {
  if (told_to_start_ || start.ranks_size() == 0) return;
  told_to_start_ = true;
  if (start.ranks(0).rank() != 0) reserved_port_.reset();
  HostPlan plan;
  try {
    plan = complete(from_message(start));
    open_store(plan.rendezvous.job_key_hex);
    plan.rendezvous.store = server_->address().to_string();
  } catch (const ProgramUnusable& error) {
    rank_not_started(start.ranks(0).rank(), error.what(), error.exit_code());
    return nothing_left(0);
  } catch (const Error& error) {
    rank_not_started(start.ranks(0).rank(), error.what(), 1);
    return nothing_left(0);
  }
  keeper_.set_lease(lease_length_);
  host_.start(plan);
}

void Agent::open_store(const std::string& job_key_hex) {
  server_ = std::make_unique<StoreServer>(JobKey::from_hex(job_key_hex), "127.0.0.1", store_, log_);
  loop_.watch(server_->fd(), EPOLLIN, [this] { server_->serve_now(); });
}

void Agent::ask_parent(std::uint64_t id, const StoreRequest& request) {
  proto::FromAgent message;
  proto::StoreRequest& entry = *message.mutable_store_request();
  entry.set_id(id);
  entry.set_operation(request.operation == StoreOperation::set   ? proto::StoreRequest::SET
                      : request.operation == StoreOperation::get ? proto::StoreRequest::GET
                                                                 : proto::StoreRequest::ADD);
  entry.set_key(request.key);
  entry.set_value(request.value);
  entry.set_amount(request.amount);
  send(std::move(message));
}

void Agent::rank_started(int rank, pid_t pid) {
  proto::FromAgent message;
  message.mutable_rank_started()->set_rank(rank);
  message.mutable_rank_started()->set_pid(pid);
  send(std::move(message));
}

void Agent::rank_not_started(int rank, const std::string& cause, int exit_code) {
  proto::FromAgent message;
  message.mutable_rank_not_started()->set_rank(rank);
  message.mutable_rank_not_started()->set_cause(cause);
  message.mutable_rank_not_started()->set_exit_code(exit_code);
  send(std::move(message));
}

void Agent::rank_wrote(int rank, Stream stream, std::string_view bytes) {
  proto::FromAgent message;
  message.mutable_output()->set_rank(rank);
  message.mutable_output()->set_errors(stream == Stream::errors);
  message.mutable_output()->set_bytes(bytes.data(), bytes.size());
  send(std::move(message));
  std::size_t& in_flight = in_flight_[index_of(stream)];
  in_flight += bytes.size();
  if (parent_ != nullptr && in_flight >= kOutputWindow) host_.hold(stream, true);
}

void Agent::on_taken(Stream stream, std::size_t bytes) {
  std::size_t& in_flight = in_flight_[index_of(stream)];
  in_flight -= std::min(in_flight, bytes);
  if (in_flight < kOutputWindow) host_.hold(stream, false);
}

void Agent::input_taken(int rank) {
  proto::FromAgent message;
  message.mutable_input_taken()->set_rank(rank);
  send(std::move(message));
}

void Agent::rank_ended(int rank, ExitStatus status, const JobEnding& said) {
  proto::FromAgent message;
  proto::RankEnded& end = *message.mutable_rank_ended();
  end.set_rank(rank);
  end.set_by_signal(status.by_signal);
  end.set_value(status.value);
  end.set_core_dumped(status.core_dumped);
  if (said.kind == JobEnding::Kind::local_failure) end.set_cause(said.cause);
  if (said.kind == JobEnding::Kind::consequence) end.set_culprit(said.culprit);
  end.set_in_job(said.in_job);
  send(std::move(message));
}

void Agent::nothing_left(int) {
  nothing_left_ = true;
  proto::FromAgent message;
  message.mutable_nothing_left();
  send(std::move(message));
}

// Also called for the local host, if the keeper is gone: then the parent sends nothing more to this agent, except for
// the agents behind it.
void Agent::host_lost(int host, const std::string& cause) {
  dismissed_ |= host == static_cast<int>(bootstrap_.host());
  if (parent_ == nullptr) return;
  proto::FromAgent message;
  message.set_host(static_cast<std::uint32_t>(host));
  message.mutable_lost()->set_cause(cause);
  parent_->send(std::move(message));
}

void Agent::complaint(const std::string& line) {
  proto::FromAgent message;
  message.mutable_complaint()->set_line(line);
  send(std::move(message));
}

void Agent::statuses(int, std::uint64_t question, std::vector<RankStatus> statuses) {
  proto::FromAgent message;
  message.mutable_statuses()->set_id(question);
  std::size_t bytes = 0;
  for (RankStatus& status : statuses) {
    if (bytes > kMaxStatuses) status.stack.clear();
    bytes += message.mutable_statuses()->add_statuses()->assign(encode(status)).size();
  }
  send(std::move(message));
}

void Agent::initialized(int) {
  proto::FromAgent message;
  message.mutable_initialized();
  send(std::move(message));
}

void Agent::stalled(int, bool on) {
  proto::FromAgent message;
  message.mutable_stalled()->set_on(on);
  send(std::move(message));
}

// The ranks' output is lost from now on; it is still read, so that they do not block and can end.
void Agent::on_parent_lost(const std::string& cause) {
  parent_.reset();
  lease_.pause(true, Clock::now());  // from now on, beats only renew the keeper's lease
  store_.lost(cause);
  subtree_.reset();  // its agents detect that, and do the same
  end_.emplace(0, grace_);
  end_->interrupted(SIGTERM, Clock::now());
  host_.hold(Stream::output, false);
  host_.hold(Stream::errors, false);
  set_timer();
}

void Agent::on_signals() {
  for (const int signal : signals_.take()) {
    const bool ends = signal == SIGTERM || signal == SIGHUP || signal == SIGINT || signal == SIGQUIT;
    if (ends && parent_ != nullptr) on_parent_lost("this agent was told to end by " + signal_name(signal));
  }
  host_.collect([this](pid_t pid, ExitStatus status) {
    if (subtree_ != nullptr) subtree_->child_ended(pid, status);
  });
}

void Agent::on_time() {
  const TimePoint now = Clock::now();
  if (parent_ != nullptr && lease_.has_expired(now)) on_parent_lost("nothing was heard of it");
  if (lease_.beat_is_due(now)) {
    keeper_.renew_lease();
    proto::FromAgent beat;
    beat.mutable_beat();
    send(std::move(beat));
  }
  if (end_) {
    const std::optional<int> signal = end_->signal_due(now);
    if (signal && told_to_start_) {
      host_.signal_all(*signal);
      host_.signal_all(SIGCONT);
    }
  }
  set_timer();
}

void Agent::set_timer() {
  const std::optional<Deadline> stage = end_ ? end_->next_deadline() : std::nullopt;
  timer_.set(std::min(lease_.next_deadline(), stage.value_or(Deadline::max())));
}

}  // namespace hvd::launcher
