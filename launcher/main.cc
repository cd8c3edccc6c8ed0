// hvdrun: starts N processes of one program and ends them as one.
#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/net/authentication.h"
#include "core/rendezvous/store_server.h"
#include "launcher/binding.h"
#include "launcher/command_line.h"
#include "launcher/cpus.h"
#include "launcher/hosts.h"
#include "launcher/job.h"
#include "launcher/job_environment.h"
#include "launcher/program.h"
#include "launcher/signal_source.h"

namespace hvd::launcher {
namespace {

constexpr int kUsageError = 2;

// Were one of the first three descriptors closed, a pipe would take its number.
void open_standard_descriptors() {
  while (true) {
    const int fd = open("/dev/null", O_RDWR);
    if (fd < 0) return;
    if (fd > STDERR_FILENO) {
      close(fd);
      return;
    }
  }
}

std::string own_hostname() {
  char name[256] = "localhost";
  gethostname(name, sizeof name - 1);
  return name;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file) throw InvalidArgument("--hostfile " + path + ": cannot be read");
  return text.str();
}

std::vector<HostSlots> hosts_of(const ProgramLine& line) {
  if (!line.hostfile.empty()) return parse_hostfile(read_file(line.hostfile));
  return line.hosts.empty() ? std::vector<HostSlots>{} : parse_hosts(line.hosts);
}

// A name with a slash is one in the program's folder, if it has one of its own.
std::string seen_from(const std::string& folder, const std::string& name) {
  const bool is_path = name.find('/') != std::string::npos;
  return is_path && !folder.empty() ? (std::filesystem::path(folder) / name).string() : name;
}

ProgramPlan make_program(const ProgramLine& line, const CommandLine& job, const std::string& hostname) {
  ProgramPlan plan;
  plan.ranks = count_local_ranks(line.num_proc, hosts_of(line), hostname, job.oversubscribe);
  plan.environment = parse_environment(environ);
  for (const auto& [name, value] : job.mca) plan.environment["OMPI_MCA_" + name] = value;
  for (const std::string& name : apply_exports(plan.environment, line.exports)) {
    std::fprintf(stderr, "hvdrun: -x %s: not set here, so there is nothing to pass on\n", name.c_str());
  }
  plan.working_directory = line.working_directory;
  if (!plan.working_directory.empty() && !std::filesystem::is_directory(plan.working_directory)) {
    throw InvalidArgument("--wdir " + plan.working_directory + ": there is no such folder");
  }
  const auto path = plan.environment.find("PATH");
  const std::string search = path == plan.environment.end() ? "/usr/local/bin:/usr/bin:/bin" : path->second;
  const std::string file = find_program(seen_from(plan.working_directory, line.command.front()), search);
  plan.file = plan.working_directory.empty() ? file : std::filesystem::absolute(file).string();
  plan.arguments = line.command;
  return plan;
}

// Becomes `hvd doctor`, which is installed beside hvdrun. Returns an exit code if that cannot be.
int run_doctor(const SignalSource& signals) {
  const std::filesystem::path doctor = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "hvd";
  signals.restore_original();
  execl(doctor.c_str(), doctor.c_str(), "doctor", nullptr);
  std::fprintf(stderr, "hvdrun: --check-build is hvd doctor, which comes with the Python package; there is no %s\n",
               doctor.c_str());
  return 1;
}

// Becomes mpirun, under which ranks find each other through MPI.
int run_mpirun(const CommandLine& line, const SignalSource& signals) {
  std::vector<std::string> words = line.for_mpirun;
  words.insert(words.begin(), "mpirun");
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  signals.restore_original();
  execvp("mpirun", arguments.data());
  std::fprintf(stderr, "hvdrun: --launcher mpi: mpirun cannot be started: %s\n", std::strerror(errno));
  return 1;
}

JobPlan make_plan(const CommandLine& line, const std::string& hostname) {
  JobPlan plan;
  for (const ProgramLine& program : line.programs) {
    plan.programs.push_back(make_program(program, line, hostname));
    if (plan.size() > kMaxSlots) throw InvalidArgument("more than " + std::to_string(kMaxSlots) + " processes");
  }
  plan.cpus = bind_ranks(plan.size(), line.binding, read_cpus(allowed_cpu_numbers()));
  plan.report_bindings = line.report_bindings;
  plan.input_rank = line.input_rank;
  if (plan.input_rank && *plan.input_rank >= plan.size()) {
    throw InvalidArgument("--stdin " + std::to_string(*plan.input_rank) + ": there are only " +
                          std::to_string(plan.size()) + " ranks");
  }
  plan.meeting.hostname = hostname;
  plan.output_directory = line.output_directory;
  plan.tag_output = line.tag_output;
  plan.timestamp_output = line.timestamp_output;
  plan.merge_errors = line.merge_errors;
  plan.timeout = line.timeout;
  plan.verbose = line.verbose;
  plan.grace = line.grace;
  return plan;
}

int run(const std::vector<std::string>& arguments, SignalSource& signals) {
  const CommandLine line = parse_command_line(arguments);
  if (line.information) {
    std::fputs(line.information->c_str(), stdout);
    return 0;
  }
  if (line.check_build) return run_doctor(signals);
  if (line.started_by == StartedBy::mpirun) return run_mpirun(line, signals);
  JobPlan plan = make_plan(line, own_hostname());
  const Log log("hvdrun", line.verbose ? LogLevel::info : LogLevel::warning);
  const JobKey key = JobKey::random();
  const StoreServer store(key, "127.0.0.1", log);
  plan.meeting.store = store.address().to_string();
  plan.meeting.job_key_hex = key.to_hex();
  return Job(std::move(plan), signals).run();
}

}  // namespace
}  // namespace hvd::launcher

int main(int argc, char** argv) {
  using namespace hvd;
  using namespace hvd::launcher;
  open_standard_descriptors();
  try {
    SignalSource signals;
    return launcher::run({argv + 1, argv + argc}, signals);
  } catch (const ProgramUnusable& error) {
    std::fprintf(stderr, "hvdrun: %s\n", error.what());
    return error.exit_code();
  } catch (const InvalidArgument& error) {
    std::fprintf(stderr, "hvdrun: %s\nhvdrun --help shows the options.\n", error.what());
    return kUsageError;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "hvdrun: %s\n", error.what());
    return 1;
  }
}
