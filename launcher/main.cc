// hvdrun: starts the processes of a job, on one host or several, and ends them together.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/bootstrap/store_server.h"
#include "core/net/authentication.h"
#include "core/net/endpoint.h"
#include "launcher/cli/command_line.h"
#include "launcher/cli/job_layout.h"
#include "launcher/job/job.h"
#include "launcher/job/local_host.h"
#include "launcher/output/output_stream.h"
#include "launcher/plan/host_plan.h"
#include "launcher/plan/host_resources.h"
#include "launcher/plan/hosts.h"
#include "launcher/plan/start_command.h"
#include "launcher/processes/event_loop.h"
#include "launcher/processes/supervisor.h"
#include "launcher/remote/listening_agent.h"
#include "launcher/remote/run_on_hosts.h"

namespace hvd::launcher {
namespace {

constexpr int kUsageError = 2;
constexpr Duration kStartTimeout = 30s;
constexpr Duration kLease = 5s;

// Opens standard descriptors that are closed: else a pipe would get their numbers, or a descriptor that a library's
// static constructor opens (gRPC's eventfd). Runs before these constructors.
[[gnu::constructor(101)]] void open_standard_descriptors() {
  while (true) {
    const int fd = open("/dev/null", O_RDWR);
    if (fd < 0) return;
    if (fd > STDERR_FILENO) {
      close(fd);
      return;
    }
  }
}

std::string read_file(const std::string& path) {
  std::ifstream file(path);
  std::string text;
  while (file) {
    char piece[4096];
    file.read(piece, sizeof piece);
    text.append(piece, static_cast<std::size_t>(file.gcount()));
  }
  if (!file.eof()) throw InvalidArgument(path + ": cannot be read");  // there is none, or it is a folder
  return text;
}

// Prints a line for the user, unless --quiet is given.
void note(const CommandLine& line, const std::string& text) {
  if (!line.quiet) std::fprintf(stderr, "hvdrun: %s\n", text.c_str());
}

// Merges the options of --config-file; options on the command line override them.
CommandLine read_command_line(const std::vector<std::string>& arguments) {
  CommandLine line = parse_command_line(arguments);
  if (line.config_file.empty()) return line;
  const std::string file = line.config_file;
  const ConfigOptions config = read_config(read_file(file), !line.start.is_given, file);
  std::vector<std::string> all = config.options;
  all.insert(all.end(), arguments.begin(), arguments.end());
  line = parse_command_line(all);
  for (const std::string& key : config.unknown_keys)
    line.notes.push_back(file + ": " + key + " is not a known key, and is ignored");
  return line;
}

// As mpirun and mpiexec do, takes MPIEXEC_TIMEOUT, a number of seconds, for --timeout if that is not given.
void take_timeout(const Environment& environment, CommandLine& line) {
  const auto found = environment.find("MPIEXEC_TIMEOUT");
  if (found == environment.end() || found->second.empty() || line.gives_timeout) return;
  const auto limit = number_within(found->second, 0);
  if (!limit) throw InvalidArgument("MPIEXEC_TIMEOUT=" + found->second + ": a number of seconds");
  if (*limit > 0) line.job.timeout = std::chrono::seconds(*limit);
}

// Looks up the program on this machine if it runs here; else each host looks it up itself.
ProgramPlan make_program(const ProgramLine& line, const CommandLine& job, bool runs_here) {
  ProgramPlan plan;
  plan.environment = parse_environment(environ);
  for (const auto& [name, value] : job.mca) plan.exports["OMPI_MCA_" + name] = value;
  if (job.start.timeout) plan.exports["HVD_START_TIMEOUT"] = std::to_string(seconds(*job.start.timeout));
  if (job.start.lease) plan.exports["HVD_LEASE"] = std::to_string(std::clamp(seconds(*job.start.lease), 1.0, 3600.0));
  for (const std::string& name : job.start.interfaces) plan.exports["HVD_NETWORK_INTERFACES"] += name + ",";
  Environment given = plan.environment;
  std::vector<std::string> exports = job.exports;
  exports.insert(exports.end(), line.exports.begin(), line.exports.end());
  for (const std::string& name : apply_exports(given, exports)) {
    note(job, "-x " + name + ": not set here, so there is nothing to pass on");
  }
  for (const std::string& entry : exports) {
    const std::string name = entry.substr(0, entry.find('='));
    if (given.contains(name)) plan.exports[name] = given[name];
  }
  plan.arguments = line.command;
  plan.working_directory = line.working_directory;
  if (!runs_here) {
    const std::string folder = plan.working_directory.empty() ? "." : plan.working_directory;
    std::error_code error;
    plan.working_directory = std::filesystem::absolute(folder, error).lexically_normal().string();
    if (error) throw InvalidArgument("the current folder: " + error.message() + "; start hvdrun in one that exists");
    return plan;
  }
  if (!plan.working_directory.empty() && !std::filesystem::is_directory(plan.working_directory)) {
    throw InvalidArgument("--wdir " + plan.working_directory + ": there is no such folder");
  }
  plan.file = find_program(plan.working_directory, line.command.front(), search_path_of(given));
  return plan;
}

// Executes `hvd doctor`, which is installed beside hvdrun. Returns an exit code only if that fails.
int run_doctor(const SignalSource& signals) {
  const std::filesystem::path doctor = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "hvd";
  signals.restore_original();
  execl(doctor.c_str(), doctor.c_str(), "doctor", nullptr);
  std::fprintf(stderr, "hvdrun: --check-build is hvd doctor, which comes with the Python package; there is no %s\n",
               doctor.c_str());
  return 1;
}

bool mpirun_has_x() {
  std::string answer(4096, ' ');
  if (FILE* const version = popen("mpirun --version 2> /dev/null", "r"); version != nullptr) {
    answer.resize(std::fread(answer.data(), 1, answer.size(), version));
    pclose(version);
  }
  return answer.find("HYDRA") == std::string::npos && answer.find("Intel(R) MPI") == std::string::npos;
}

// Executes mpirun, under which ranks find each other through MPI. Open MPI's mpirun refuses to run as root unless two
// variables allow it; they are set here, as horovodrun does.
int run_mpirun(const CommandLine& line, const SignalSource& signals) {
  std::vector<std::string> words = mpirun_arguments(line, mpirun_has_x());
  words.insert(words.begin(), "mpirun");
  if (line.dry_run) {
    std::printf("%s\n", shell_quoted(words).c_str());
    return 0;
  }
  Environment variables;
  apply_exports(variables, line.exports);
  for (const auto& [name, value] : variables) setenv(name.c_str(), value.c_str(), 1);
  if (geteuid() == 0) {
    setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 0);
    setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 0);
  }
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  signals.restore_original();
  execvp("mpirun", arguments.data());
  std::fprintf(stderr, "hvdrun: --launcher mpi: mpirun cannot be started: %s\n", std::strerror(errno));
  return 1;
}

// Read anew for each agent of an elastic job: hosts are added.
std::map<std::string, std::string> agent_addresses(const CommandLine& line) {
  const std::string& file = line.start.agent_addresses;
  return file.empty() ? std::map<std::string, std::string>() : parse_agent_addresses(read_file(file), file);
}

using IsHere = std::function<bool(const std::string& host)>;

LocalNames local_names() {
  LocalNames own{.hostname = local_hostname(), .addresses = {}};
  for (const LocalAddress& entry : local_addresses()) own.addresses.push_back(entry.address);
  return own;
}

// Asks the resolver for the addresses of names that are not this machine's own: it may block for long.
IsHere resolve_local_hosts(const CommandLine& line) {
  return [own = local_names(), listening = agent_addresses(line)](const std::string& host) {
    if (listening.contains(host)) return false;  // several may listen on one machine
    if (is_this_host(host, own)) return true;
    std::string cause;  // an unknown name has no address
    std::vector<std::string> addresses;
    for (const Endpoint& endpoint : resolve({.host = host}, false, cause)) addresses.push_back(endpoint.host());
    return is_this_host(host, own, addresses);
  };
}

JobLayout find_layout(const CommandLine& line, const Environment& environment, const IsHere& is_here) {
  return lay_out(
      line, {.environment = environment, .read_file = read_file, .is_here = is_here, .hostname = local_hostname()});
}

std::vector<ProgramPlan> make_programs(const CommandLine& line, bool runs_here) {
  std::vector<ProgramPlan> programs;
  for (const ProgramLine& program : line.programs) programs.push_back(make_program(program, line, runs_here));
  const ProgramPlan& first = programs.front();
  if (const std::string replaced = replaced_torch_variables(with_exports(first), first.exports); !replaced.empty()) {
    note(line, "overrides these variables of your environment: " + replaced);
  }
  return programs;
}

// The processes of an elastic job may take all slots of its hosts; on this machine alone, as many as it begins with.
void plan_all_slots(CommandLine& line, const JobLayout& layout) {
  if (!line.job.elastic) return;
  std::optional<int>& num_proc = line.programs.front().num_proc;
  const bool takes_all = layout.pools.front().limited || (line.placement.ranks_per_host && !num_proc);
  num_proc = takes_all ? std::nullopt : std::optional(line.job.elastic->num_proc + line.job.elastic->spares);
}

// Returns hvdrun's exit code when no process of the job is left.
int run_on_this_machine(const CommandLine& line, const JobLayout& layout, SignalSource& signals) {
  const HostDescription facts = describe_local_host();
  HostPlan host = plan_hosts(layout, line, {facts}, make_programs(line, true)).front();
  host.name = host.rendezvous.hostname = facts.hostname;
  host.is_elastic = line.job.elastic.has_value();
  host.rendezvous.job_key_hex = JobKey::random().to_hex();
  Supervisor supervisor(signals);
  for (std::size_t program = 0; program < host.programs.size() && line.job.verbose; ++program) {
    const auto ranks = std::ranges::count(host.ranks, program, &RankPlan::program);
    std::fprintf(stderr, "hvdrun: starting %s in %td processes\n", host.programs[program].file.c_str(), ranks);
  }
  EventLoop loop;
  const Log log("hvdrun", line.job.verbose ? LogLevel::info : LogLevel::warning);
  StoreOrigin store;
  ElasticStore elastic_store(store);
  StoreSource& served = line.job.elastic ? static_cast<StoreSource&>(elastic_store) : store;
  StoreServer server(JobKey::from_hex(host.rendezvous.job_key_hex), "127.0.0.1", served, log);
  loop.watch(server.fd(), EPOLLIN, [&] { server.serve_now(); });
  host.rendezvous.store = server.address().to_string();
  const ReservedPort master;
  host.rendezvous.master_address = "127.0.0.1";
  host.rendezvous.master_port = std::to_string(master.number());
  const auto readers = std::ranges::count_if(host.ranks, &RankPlan::reads_input);
  JobHosts hosts;
  hosts.feeds_input = readers > 1 || (readers == 1 && isatty(STDIN_FILENO) == 1);
  FileDescriptor input;
  if (readers == 1 && !hosts.feeds_input) {
    input.reset(fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0));
    if (!input) throw_errno("cannot pass standard input on");
  }
  Job job(line.job, static_cast<int>(host.ranks.size()), loop, signals);
  auto here = std::make_unique<LocalHost>(loop, signals, supervisor, job, 0, std::move(input));
  LocalHost& local = *here;
  hosts.plans.push_back(std::move(host));
  hosts.hosts.push_back(std::move(here));
  hosts.collect_children = [&] { local.collect([&](pid_t pid, ExitStatus status) { job.child_ended(pid, status); }); };
  hosts.pause = [](bool) {};
  hosts.set_failure = [&](const std::string& cause) { set_job_failure(store, cause); };
  hosts.elastic_store = &elastic_store;
  return job.run(std::move(hosts));
}

AgentOptions agent_options(const CommandLine& line) {
  return {.interfaces = line.start.interfaces,
          .lease = line.start.lease.value_or(kLease),
          .grace = line.job.grace,
          .start_timeout = line.start.timeout.value_or(kStartTimeout)};
}

// The command that starts an agent on another host, on which one listens. Throws InvalidArgument.
std::string start_by_address(const CommandLine& line, const std::map<std::string, std::string>& addresses,
                             const std::string& host, const std::string& hvdrun) {
  const auto found = addresses.find(host);
  if (found == addresses.end() && !line.start.agent_port) {
    throw InvalidArgument(line.start.agent_addresses + " does not say where the agent of host " + host + " listens");
  }
  const std::string address =
      found == addresses.end() ? bracketed(host) + ":" + std::to_string(*line.start.agent_port) : found->second;
  return start_by_listening_agent(address, agent_options(line).start_timeout, hvdrun);
}

// Returns the command that starts the agent of each host. Throws InvalidArgument.
std::vector<std::string> start_commands(const CommandLine& line, const JobLayout& layout, StartedBy by,
                                        const RemoteShell& shell) {
  const std::string hvdrun = std::filesystem::read_symlink("/proc/self/exe").string();
  if (by == StartedBy::slurm && !line.start.agents_listen()) {
    return {layout.hosts.size(), shell_quoted(start_by_slurm(layout.hosts, hvdrun))};
  }
  const auto addresses = agent_addresses(line);
  std::vector<std::string> commands;
  for (std::size_t host = 0; host < layout.hosts.size(); ++host) {
    if (layout.is_here[host]) {
      commands.push_back("exec " + shell_quoted(hvdrun) + " agent");
    } else if (line.start.agents_listen()) {
      commands.push_back(start_by_address(line, addresses, layout.hosts[host].host, hvdrun));
    } else {
      commands.push_back(start_by_remote_shell(shell, layout.hosts[host], hvdrun));
    }
  }
  return commands;
}

// Does not contact the hosts: assumes that all have the resources of this machine.
void print_plan(const CommandLine& line, const JobLayout& layout, const std::vector<std::string>& commands) {
  const HostDescription facts = describe_local_host();
  const std::vector<HostDescription> all(layout.hosts.size(), facts);
  std::vector<HostPlan> plans = plan_hosts(layout, line, all, make_programs(line, false));
  std::vector<PlannedHost> hosts;
  for (std::size_t i = 0; i < plans.size(); ++i) {
    HostRendezvous& rendezvous = plans[i].rendezvous;
    rendezvous.store = "tcp:127.0.0.1:PORT";
    rendezvous.group_rank = static_cast<int>(i);
    rendezvous.master_address = commands.empty() ? "127.0.0.1" : plans.front().name;
    rendezvous.master_port = "PORT";
    hosts.push_back({.plan = plans[i],
                     .slots = slots_of(layout.hosts[i], slots_rule(line.placement), facts.resources),
                     .start_command = commands.empty() ? "" : commands[i]});
  }
  std::fputs(plan_text(layout.hosts_from, hosts).c_str(), stdout);
  std::fflush(stdout);
}

int run_with_agents(const CommandLine& line, const JobLayout& layout, const std::vector<std::string>& commands,
                    SignalSource& signals) {
  HostsToUse hosts;
  for (std::size_t host = 0; host < layout.hosts.size(); ++host) {
    hosts.hosts.push_back(
        {.name = layout.hosts[host].host, .start_command = commands[host], .is_here = layout.is_here[host]});
  }
  hosts.agents = agent_options(line);
  const std::string key = JobKey::random().to_hex();
  hosts.assign = [&, programs = make_programs(line, false)](const std::vector<HostDescription>& facts) {
    std::vector<HostPlan> plans = plan_hosts(layout, line, facts, programs);
    for (HostPlan& plan : plans) plan.rendezvous.job_key_hex = key;
    return plans;
  };
  return run_on_hosts(line.job, std::move(hosts), signals);
}

// Each host is planned by itself: the ranks of an elastic job are not known beforehand. `fixed`: empty if a script
// names the hosts. While the job runs, no name is resolved: that would hold up the event loop.
int run_elastic_with_agents(const CommandLine& line, const JobLayout& fixed, const Environment& environment,
                            const RemoteShell& shell, SignalSource& signals) {
  const std::string key = JobKey::random().to_hex();
  const auto layout_of = [&line, &environment](const HostSlots& host, const IsHere& is_here) {
    CommandLine alone = line;
    alone.programs.front().hosts = (host.user.empty() ? "" : host.user + "@") + bracketed(host.host) +
                                   (host.slots ? ":" + std::to_string(*host.slots) : "");
    alone.programs.front().hostfile.clear();
    alone.programs.front().num_proc.reset();
    return std::pair(find_layout(alone, environment, is_here), alone);
  };
  std::set<std::string> fixed_here;
  for (std::size_t host = 0; host < fixed.hosts.size(); ++host) {
    if (fixed.is_here[host]) fixed_here.insert(fixed.hosts[host].host);
  }
  const auto is_here = [&](const std::string& host) {
    return fixed_here.contains(host) || (!agent_addresses(line).contains(host) && is_this_host(host, local_names()));
  };
  ElasticHosts hosts{
      .fixed = fixed.hosts,
      .discovery_script = line.discovery_script,
      .discovery_interval = line.discovery_interval,
      .agents = agent_options(line),
      .start_command =
          [&](const HostSlots& host) {
            const JobLayout layout = layout_of(host, is_here).first;
            // `fixed` knows of the allocation; `layout` has the host as if -H had named it.
            const StartedBy by = choose_start(line.start.by, shell, false, fixed.by_slurm);
            return start_commands(line, layout, by, shell).front();
          },
      .plan =
          [&, programs = make_programs(line, false)](const HostSlots& host, const HostDescription& facts) {
            const auto [layout, alone] = layout_of(host, [](const std::string&) { return false; });
            HostPlan plan = plan_hosts(layout, alone, {facts}, programs).front();
            plan.rendezvous.job_key_hex = key;
            plan.is_elastic = true;
            return plan;
          }};
  return run_elastic(line.job, std::move(hosts), signals);
}

constexpr char kAgentHelp[] =
    "Usage: hvdrun agent --listen [ADDRESS:]PORT [--once] [--until-eof]\n\n"
    "Waits on a host without ssh for hvdrun --agent-port PORT, which knows the same HVD_JOB_KEY "
    "(docs/launching.md).\n\n"
    "  --listen [ADDRESS:]PORT  Where to wait: all interfaces, or that of an address; port 0: any free one\n"
    "  --once                   End after the first job\n"
    "  --until-eof              End at the end of standard input, a pipe\n";

// hvdrun's own processes on the hosts of a job, and what users start there: hvdrun agent --listen.
int run_as_agent(const std::vector<std::string>& words, SignalSource& signals) {
  if (words.empty() || words == std::vector<std::string>{"--leave"}) return run_agent(signals, !words.empty());
  if (words.front() == "--help" || words.front() == "-h") {
    std::fputs(kAgentHelp, stdout);
    return 0;
  }
  if (words.size() == 3 && words[0] == "--call") {
    const auto limit = std::chrono::duration<double>(std::strtod(words[2].c_str(), nullptr));
    return call_agent(words[1], std::chrono::duration_cast<Duration>(limit), signals);
  }
  return run_listening_agent(parse_listen(words), signals);
}

// The key that listening agents ask for is checked before any of them is called.
void check_key_of_agents(const CommandLine& line, const Environment& environment, const JobLayout& layout) {
  const std::string option = line.start.agent_port ? "--agent-port" : "--agent-addresses";
  if (layout.hosts_from.empty() && line.discovery_script.empty()) {
    throw InvalidArgument(option + ": which hosts? Name them with -H, --hostfile or --host-discovery-script");
  }
  const auto key = environment.find("HVD_JOB_KEY");
  if (key == environment.end()) {
    throw InvalidArgument(option + ": HVD_JOB_KEY is not set; it must be the one that the agents were started with");
  }
  JobKey::from_hex(key->second);
}

// The folder with the file in which the script that watches pods says where their agents listen. Removed at the end.
class PodAddresses {
 public:
  explicit PodAddresses(CommandLine& line) : folder_(std::filesystem::temp_directory_path() / "hvdrun-pods-XXXXXX") {
    if (mkdtemp(folder_.data()) == nullptr) throw_errno("cannot make a folder like " + folder_);
    line.start.agent_addresses = folder_ + "/addresses";
    line.discovery_script += " --addresses " + shell_quoted(line.start.agent_addresses);
  }
  ~PodAddresses() {
    std::error_code none;
    std::filesystem::remove_all(folder_, none);
  }
  PodAddresses(const PodAddresses&) = delete;
  PodAddresses& operator=(const PodAddresses&) = delete;

 private:
  std::string folder_;
};

int run(const std::vector<std::string>& arguments, SignalSource& signals) {
  if (!arguments.empty() && arguments.front() == "agent") {
    return run_as_agent({arguments.begin() + 1, arguments.end()}, signals);
  }
  CommandLine line = read_command_line(arguments);
  if (line.information) {
    std::fputs(line.information->c_str(), stdout);
    return 0;
  }
  if (line.check_build) return run_doctor(signals);
  for (const std::string& text : line.notes) note(line, text);
  if (line.start.by == StartedBy::mpirun) return run_mpirun(line, signals);
  const Environment environment = parse_environment(environ);
  take_timeout(environment, line);
  const RemoteShell shell = with_parameters_of_open_mpi(line.start.remote_shell, line.mca, environment);
  if (!line.discovery_script.empty() && !line.dry_run) {
    if (line.start.agents_listen()) check_key_of_agents(line, environment, {});
    std::optional<PodAddresses> addresses;
    if (!line.pod_selector.empty()) addresses.emplace(line);
    return run_elastic_with_agents(line, {}, environment, shell, signals);
  }
  const JobLayout layout = find_layout(line, environment, resolve_local_hosts(line));
  if (line.start.agents_listen()) check_key_of_agents(line, environment, layout);
  plan_all_slots(line, layout);
  const StartedBy by = choose_start(line.start.by, shell, layout.all_here(), layout.by_slurm);
  std::vector<std::string> commands;
  if (by != StartedBy::local) commands = start_commands(line, layout, by, shell);
  if (line.dry_run || line.display_map) print_plan(line, layout, commands);
  if (line.dry_run) return 0;
  if (by == StartedBy::local) return run_on_this_machine(line, layout, signals);
  if (line.job.elastic) return run_elastic_with_agents(line, layout, environment, shell, signals);
  return run_with_agents(line, layout, commands, signals);
}

}  // namespace
}  // namespace hvd::launcher

int main(int argc, char** argv) {
  using namespace hvd;
  using namespace hvd::launcher;
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
