#include "launcher/remote/messages.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "core/base/error.h"
#include "launcher/plan/host_resources.h"

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
  message.set_rank(plan.place.rank);
  message.set_local_rank(plan.place.local_rank);
  message.set_cross_rank(plan.place.cross_rank);
  message.set_cross_size(plan.place.cross_size);
  message.set_program(static_cast<std::uint32_t>(plan.program));
  for (const int cpu : plan.cpus) message.add_cpus(cpu);
  message.set_visible_gpus(plan.visible_gpus);
  message.set_reads_input(plan.reads_input);
}

RankPlan rank_of(const proto::Rank& message) {
  RankPlan plan;
  plan.place.rank = message.rank();
  plan.place.local_rank = message.local_rank();
  plan.place.cross_rank = message.cross_rank();
  plan.place.cross_size = message.cross_size();
  plan.program = message.program();
  plan.cpus.assign(message.cpus().begin(), message.cpus().end());
  plan.visible_gpus = message.visible_gpus();
  plan.reads_input = message.reads_input();
  return plan;
}

constexpr std::size_t kMaxDigits = 6;
constexpr std::size_t kMaxBytes = 256 * 1024;

[[noreturn]] void throw_foreign() {
  throw InvalidArgument("hvdrun starts `hvdrun agent` itself, on each host of a job; it is of no use otherwise");
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
  if (length == 0 || length > kMaxBytes) throw_foreign();
  return length;
}

}  // namespace

proto::Start to_message(const HostPlan& plan) {
  proto::Start message;
  message.set_name(plan.name);
  for (const ProgramPlan& program : plan.programs) put(program, *message.add_programs());
  for (const RankPlan& rank : plan.ranks) put(rank, *message.add_ranks());
  message.set_size(plan.ranks.empty() ? 0 : plan.ranks.front().place.size);
  message.set_local_address(plan.rendezvous.address);
  message.set_job_key(plan.rendezvous.job_key_hex);
  message.set_merge_errors(plan.merge_errors);
  message.set_verbose(plan.verbose);
  message.set_group_rank(static_cast<std::uint32_t>(plan.rendezvous.group_rank));
  message.set_master_address(plan.rendezvous.master_address);
  message.set_master_port(plan.rendezvous.master_port);
  return message;
}

HostPlan from_message(const proto::Start& message) {
  HostPlan plan;
  plan.name = message.name();
  for (const proto::Program& program : message.programs()) plan.programs.push_back(program_of(program));
  for (const proto::Rank& entry : message.ranks()) {
    RankPlan rank = rank_of(entry);
    rank.place.size = message.size();
    rank.place.local_size = message.ranks_size();
    if (rank.program >= plan.programs.size() || plan.programs[rank.program].arguments.empty()) {
      throw Internal("a plan without the program of rank " + std::to_string(rank.place.rank));
    }
    plan.ranks.push_back(std::move(rank));
  }
  plan.rendezvous.hostname = message.name();
  plan.rendezvous.address = message.local_address();
  plan.rendezvous.job_key_hex = message.job_key();
  plan.merge_errors = message.merge_errors();
  plan.verbose = message.verbose();
  plan.rendezvous.group_rank = static_cast<int>(message.group_rank());
  plan.rendezvous.master_address = message.master_address();
  plan.rendezvous.master_port = message.master_port();
  return plan;
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

proto::Bootstrap read_bootstrap(int fd, Deadline deadline) {
  if (isatty(fd) == 1) throw_foreign();
  std::string bytes(read_length(fd, deadline), '\0');
  for (char& byte : bytes) byte = read_byte(fd, deadline);
  proto::Bootstrap bootstrap;
  if (!bootstrap.ParseFromString(bytes)) throw_foreign();
  return bootstrap;
}

}  // namespace hvd::launcher
