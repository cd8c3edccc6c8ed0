#include "launcher/remote/messages.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "core/base/error.h"

namespace hvd::launcher {
namespace {

using Variables = google::protobuf::RepeatedPtrField<proto::Variable>;

void put(const Environment& environment, Variables& message) {
  for (const auto& [name, value] : environment) {
    proto::Variable& variable = *message.Add();
    variable.set_name(name);
    variable.set_value(value);
  }
}

Environment environment_of(const Variables& message) {
  Environment environment;
  for (const proto::Variable& variable : message) environment[variable.name()] = variable.value();
  return environment;
}

void put(const ProgramPlan& plan, proto::Program& message) {
  message.set_file(plan.file);
  for (const std::string& argument : plan.arguments) message.add_arguments(argument);
  put(plan.environment, *message.mutable_environment());
  put(plan.exports, *message.mutable_exports());
  message.set_working_directory(plan.working_directory);
}

ProgramPlan program_of(const proto::Program& message) {
  ProgramPlan plan;
  plan.file = message.file();
  plan.arguments.assign(message.arguments().begin(), message.arguments().end());
  plan.environment = environment_of(message.environment());
  plan.exports = environment_of(message.exports());
  plan.working_directory = message.working_directory();
  return plan;
}

void put(const RankPlan& plan, proto::Rank& message) {
  message.set_rank(plan.numbers.rank);
  message.set_local_rank(plan.numbers.local_rank);
  message.set_local_size(plan.numbers.local_size);
  message.set_cross_rank(plan.numbers.cross_rank);
  message.set_cross_size(plan.numbers.cross_size);
  message.set_program(static_cast<std::uint32_t>(plan.program));
  for (const int cpu : plan.cpus) message.add_cpus(cpu);
  message.set_visible_gpus(plan.visible_gpus);
  message.set_reads_input(plan.reads_input);
  if (plan.server >= 0) message.set_server(plan.server);
  message.set_server_start(plan.server_start);
}

void put(const OperationStatus& operation, proto::OperationStatus& message) {
  message.set_state(static_cast<std::uint32_t>(operation.state));
  message.set_process_set(operation.process_set);
  message.set_sequence(operation.sequence);
  message.set_what(operation.what);
  message.set_name(operation.name);
  message.set_shape(operation.shape);
  message.set_age(operation.age.count());
}

OperationStatus operation_of(const proto::OperationStatus& message) {
  using State = OperationStatus::State;
  const auto state = static_cast<State>(std::min(message.state(), static_cast<std::uint32_t>(State::given_up)));
  return {.state = state,
          .process_set = message.process_set(),
          .sequence = message.sequence(),
          .what = message.what(),
          .name = message.name(),
          .shape = message.shape(),
          .age = Duration(message.age())};
}

void put(const ShardFacts& shard, proto::ShardStatus& message) {
  message.set_number(shard.number);
  message.set_answers(shard.answers);
  message.set_pushes(shard.pushes);
  message.set_pulls(shard.pulls);
  message.set_rows(shard.rows);
  message.set_bytes(shard.bytes);
  message.set_staleness_median(shard.staleness_median);
  message.set_staleness_worst(shard.staleness_worst);
  message.set_queue(shard.queue);
  message.set_waiting(shard.waiting);
  if (shard.slowest != kNobody) message.set_slowest(shard.slowest);
}

ShardFacts shard_of(const proto::ShardStatus& message) {
  return {.number = message.number(),
          .answers = message.answers(),
          .pushes = message.pushes(),
          .pulls = message.pulls(),
          .rows = message.rows(),
          .bytes = message.bytes(),
          .staleness_median = message.staleness_median(),
          .staleness_worst = message.staleness_worst(),
          .queue = message.queue(),
          .waiting = message.waiting(),
          .slowest = message.has_slowest() ? message.slowest() : kNobody};
}

RankPlan rank_of(const proto::Rank& message) {
  RankPlan plan;
  plan.numbers.rank = message.rank();
  plan.numbers.local_rank = message.local_rank();
  plan.numbers.local_size = message.local_size();
  plan.numbers.cross_rank = message.cross_rank();
  plan.numbers.cross_size = message.cross_size();
  plan.program = message.program();
  plan.cpus.assign(message.cpus().begin(), message.cpus().end());
  plan.visible_gpus = message.visible_gpus();
  plan.reads_input = message.reads_input();
  if (message.has_server()) plan.server = message.server();
  plan.server_start = message.server_start();
  return plan;
}

constexpr std::size_t kMaxDigits = 6;
constexpr std::size_t kMaxBytes = 256 * 1024;

[[noreturn]] void throw_foreign() {
  throw InvalidArgument(
      "`hvdrun agent` is started by hvdrun; to let it wait for hvdrun, use: hvdrun agent --listen PORT");
}

char read_byte(int fd, Deadline deadline) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
    if (left <= 0 || poll(&entry, 1, static_cast<int>(left)) == 0) {
      throw Timeout("waiting on standard input for what hvdrun tells its agents");
    }
    char byte = 0;
    const ssize_t count = read(fd, &byte, 1);
    if (count == 1) return byte;
    if (count == 0 || (errno != EINTR && errno != EAGAIN)) throw_foreign();
  }
}

std::size_t read_length(int fd, Deadline deadline) {
  std::string digits;
  for (char byte = read_byte(fd, deadline); byte != '\n'; byte = read_byte(fd, deadline)) {
    if (byte < '0' || byte > '9' || digits.size() == kMaxDigits) throw_foreign();
    digits += byte;
  }
  std::size_t length = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), length);
  if (length == 0) throw_foreign();
  if (length > kMaxBytes) {
    throw InvalidArgument("hvdrun tells this agent " + std::to_string(length) + " bytes, and may tell " +
                          std::to_string(kMaxBytes) + ": too many hosts for one start command");
  }
  return length;
}

}  // namespace

proto::Start to_message(const HostPlan& plan) {
  proto::Start message;
  message.set_name(plan.name);
  for (const ProgramPlan& program : plan.programs) put(program, *message.add_programs());
  for (const RankPlan& rank : plan.ranks) put(rank, *message.add_ranks());
  for (const RankPlan& server : plan.servers) put(server, *message.add_servers());
  for (const std::vector<RankPlan>* some : {&plan.servers, &plan.ranks}) {
    if (!some->empty()) message.set_size(some->front().numbers.size);
  }
  message.set_servers_of_job(plan.servers_of_job);
  message.set_local_address(plan.rendezvous.address);
  message.set_job_key(plan.rendezvous.job_key_hex);
  message.set_merge_errors(plan.merge_errors);
  message.set_verbose(plan.verbose);
  message.set_group_rank(static_cast<std::uint32_t>(plan.rendezvous.group_rank));
  message.set_master_address(plan.rendezvous.master_address);
  message.set_master_port(plan.rendezvous.master_port);
  message.set_is_elastic(plan.is_elastic);
  message.set_stopped_seconds(seconds(plan.stopped_limit));
  message.set_preemption_script(plan.preemption_script);
  return message;
}

HostPlan from_message(const proto::Start& message) {
  HostPlan plan;
  plan.name = message.name();
  for (const proto::Program& program : message.programs()) plan.programs.push_back(program_of(program));
  const auto take = [&](const proto::Rank& entry, std::vector<RankPlan>& plans) {
    RankPlan rank = rank_of(entry);
    rank.numbers.size = message.size();
    if (rank.program >= plan.programs.size() || plan.programs[rank.program].arguments.empty()) {
      throw Internal("a plan without the program of " + process_name(rank));
    }
    plans.push_back(std::move(rank));
  };
  for (const proto::Rank& entry : message.ranks()) take(entry, plan.ranks);
  for (const proto::Rank& entry : message.servers()) take(entry, plan.servers);
  plan.servers_of_job = message.servers_of_job();
  plan.rendezvous.hostname = message.name();
  plan.rendezvous.address = message.local_address();
  plan.rendezvous.job_key_hex = message.job_key();
  plan.merge_errors = message.merge_errors();
  plan.verbose = message.verbose();
  plan.rendezvous.group_rank = static_cast<int>(message.group_rank());
  plan.rendezvous.master_address = message.master_address();
  plan.rendezvous.master_port = message.master_port();
  plan.is_elastic = message.is_elastic();
  plan.preemption_script = message.preemption_script();
  plan.stopped_limit = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(message.stopped_seconds()));
  return plan;
}

proto::RankStatus to_message(const RankStatus& status) {
  proto::RankStatus message;
  message.set_rank(status.rank);
  message.set_pid(status.pid);
  message.set_stopped(status.stopped);
  message.set_operations(status.counters.operations);
  message.set_bytes(status.counters.bytes);
  message.set_locked_steps(status.counters.locked_steps);
  message.set_rounds(status.counters.rounds);
  message.set_lock_state(status.counters.lock_state);
  message.set_exposed_time(status.counters.exposed_time.count());
  message.set_in_job(status.in_job);
  message.set_ended(status.ended);
  if (status.initializing) message.set_initializing(status.initializing->count());
  message.set_stall_time(status.stall_time.count());
  if (status.since_progress) message.set_since_progress(status.since_progress->count());
  for (const OperationStatus& operation : status.open) put(operation, *message.add_open());
  message.set_more_open(status.more_open);
  for (const ProcessSetStatus& set : status.sets) {
    proto::ProcessSetStatus& entry = *message.add_sets();
    entry.set_process_set(set.process_set);
    entry.set_submitted(set.submitted);
    entry.set_done(set.done);
  }
  message.set_stall(status.stall);
  if (status.frame) {
    message.mutable_frame()->set_file(status.frame->file);
    message.mutable_frame()->set_line(status.frame->line);
    message.mutable_frame()->set_function(status.frame->function);
  }
  message.set_stack(status.stack);
  for (const ShardFacts& shard : status.shards) put(shard, *message.add_shards());
  if (status.awaited != kNobody) message.set_awaited(status.awaited);
  message.set_waited(status.waited.count());
  return message;
}

RankStatus from_message(const proto::RankStatus& message) {
  RankStatus status;
  status.rank = message.rank();
  status.pid = message.pid();
  status.stopped = message.stopped();
  status.counters.operations = message.operations();
  status.counters.bytes = message.bytes();
  status.counters.locked_steps = message.locked_steps();
  status.counters.rounds = message.rounds();
  status.counters.lock_state = message.lock_state();
  status.counters.exposed_time = Duration(message.exposed_time());
  status.in_job = message.in_job();
  status.ended = message.ended();
  if (message.has_initializing()) status.initializing = Duration(message.initializing());
  status.stall_time = Duration(message.stall_time());
  if (message.has_since_progress()) status.since_progress = Duration(message.since_progress());
  for (const proto::OperationStatus& operation : message.open()) status.open.push_back(operation_of(operation));
  status.more_open = message.more_open();
  for (const proto::ProcessSetStatus& set : message.sets()) {
    status.sets.push_back({.process_set = set.process_set(), .submitted = set.submitted(), .done = set.done()});
  }
  status.stall = message.stall();
  if (message.has_frame()) {
    const proto::PythonFrame& frame = message.frame();
    status.frame = {.file = frame.file(), .line = frame.line(), .function = frame.function()};
  }
  status.stack = message.stack();
  for (const proto::ShardStatus& shard : message.shards()) status.shards.push_back(shard_of(shard));
  if (message.has_awaited()) status.awaited = message.awaited();
  status.waited = Duration(message.waited());
  return status;
}

proto::RankEnded to_message(int rank, ExitStatus status, const JobEnding& said) {
  proto::RankEnded message;
  message.set_rank(rank);
  message.set_by_signal(status.by_signal);
  message.set_value(status.value);
  message.set_core_dumped(status.core_dumped);
  if (said.kind == JobEnding::Kind::local_failure) message.set_cause(said.cause);
  if (said.kind == JobEnding::Kind::consequence) message.set_culprit(said.culprit);
  message.set_in_job(said.in_job);
  return message;
}

ExitStatus status_of(const proto::RankEnded& end) {
  return {.by_signal = end.by_signal(), .value = end.value(), .core_dumped = end.core_dumped()};
}

JobEnding said_by(const proto::RankEnded& end) {
  using Kind = JobEnding::Kind;
  if (end.has_cause()) return {.kind = Kind::local_failure, .cause = printable(end.cause())};
  if (end.has_culprit()) return {.kind = Kind::consequence, .culprit = end.culprit()};
  return {.in_job = end.in_job()};
}

proto::StoreRequest to_message(std::uint64_t id, const StoreRequest& request) {
  proto::StoreRequest message;
  message.set_id(id);
  message.set_operation(request.operation == StoreOperation::set   ? proto::StoreRequest::SET
                        : request.operation == StoreOperation::get ? proto::StoreRequest::GET
                                                                   : proto::StoreRequest::ADD);
  message.set_key(request.key);
  message.set_value(request.value);
  message.set_amount(request.amount);
  return message;
}

StoreRequest from_message(const proto::StoreRequest& message) {
  StoreRequest request;
  request.operation = message.operation() == proto::StoreRequest::SET   ? StoreOperation::set
                      : message.operation() == proto::StoreRequest::GET ? StoreOperation::get
                                                                        : StoreOperation::add;
  request.key = message.key();
  request.value = message.value();
  request.amount = message.amount();
  return request;
}

HostDescription from_message(const proto::Hello& hello) {
  HostDescription facts{.hostname = hello.hostname(),
                        .local_address = hello.local_address(),
                        .parent_address = hello.parent_address(),
                        .resources = {.cpus = {}, .gpus = hello.gpus()}};
  facts.reserved_port = static_cast<int>(hello.reserved_port());
  if (hello.has_visible_gpus()) facts.visible_gpus = hello.visible_gpus();
  for (const proto::Cpu& cpu : hello.cpus()) {
    facts.resources.cpus.push_back(
        {.number = cpu.number(), .core = cpu.core(), .numa = cpu.numa(), .socket = cpu.socket()});
  }
  return facts;
}

void put(const AgentOptions& options, proto::Bootstrap& message) {
  for (const std::string& interface : options.interfaces) message.add_interfaces(interface);
  message.set_lease_seconds(seconds(options.lease));
  message.set_grace_seconds(seconds(options.grace));
  message.set_start_seconds(seconds(options.start_timeout));
}

AgentOptions agent_options_of(const proto::Bootstrap& message) {
  const auto duration = [](double seconds) {
    return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
  };
  return {.interfaces = {message.interfaces().begin(), message.interfaces().end()},
          .lease = duration(message.lease_seconds()),
          .grace = duration(message.grace_seconds()),
          .start_timeout = duration(message.start_seconds())};
}

proto::Hello local_hello() {
  const HostDescription facts = describe_local_host();
  proto::Hello hello;
  hello.set_version(HVD_VERSION);
  hello.set_hostname(facts.hostname);
  hello.set_pid(getpid());
  for (const Cpu& cpu : facts.resources.cpus) {
    proto::Cpu& entry = *hello.add_cpus();
    entry.set_number(cpu.number);
    entry.set_core(cpu.core);
    entry.set_numa(cpu.numa);
    entry.set_socket(cpu.socket);
  }
  if (facts.visible_gpus) hello.set_visible_gpus(*facts.visible_gpus);
  hello.set_gpus(facts.resources.gpus);
  return hello;
}

std::string encode_bootstrap(const proto::Bootstrap& bootstrap) {
  const std::string bytes = bootstrap.SerializeAsString();
  return std::to_string(bytes.size()) + "\n" + bytes;
}

std::uint32_t node_of(const proto::Bootstrap& bootstrap, const char* node) {
  if (bootstrap.nodes_size() == 0) return bootstrap.host();
  const std::string name = node != nullptr ? node : "";
  for (const proto::Node& entry : bootstrap.nodes()) {
    if (entry.name() == name) return entry.host();
  }
  throw Internal("srun has started an agent on node '" + name + "' (SLURMD_NODENAME), which is none of the job's");
}

proto::Bootstrap read_bootstrap(int fd, Deadline deadline) {
  if (isatty(fd) == 1) throw_foreign();
  std::string bytes(read_length(fd, deadline), '\0');
  for (char& byte : bytes) byte = read_byte(fd, deadline);
  proto::Bootstrap bootstrap;
  if (!bootstrap.ParseFromString(bytes)) throw_foreign();
  return bootstrap;
}

}  // namespace hvd::launcher
