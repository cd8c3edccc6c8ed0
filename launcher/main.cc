// hvdrun: starts N processes of one program and ends them as one.
#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/net/authentication.h"
#include "core/rendezvous/store_server.h"
#include "launcher/command_line.h"
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

JobPlan make_plan(const CommandLine& line, const std::string& hostname) {
  JobPlan plan;
  plan.size = count_local_ranks(line.num_proc, line.hosts.empty() ? std::vector<HostSlots>{} : parse_hosts(line.hosts),
                                hostname);
  plan.environment = parse_environment(environ);
  for (const std::string& name : apply_exports(plan.environment, line.exports)) {
    std::fprintf(stderr, "hvdrun: -x %s: not set here, so there is nothing to pass on\n", name.c_str());
  }
  const auto path = plan.environment.find("PATH");
  plan.program = find_program(line.program.front(),
                              path == plan.environment.end() ? "/usr/local/bin:/usr/bin:/bin" : path->second);
  plan.arguments = line.program;
  plan.meeting.hostname = hostname;
  plan.output_directory = line.output_directory;
  plan.tag_output = line.tag_output;
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
