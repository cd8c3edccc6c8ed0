#include "launcher/cli/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <sstream>

#include "core/base/error.h"
#include "core/base/text.h"
#include "launcher/cli/arguments.h"
#include "launcher/cli/command_options.h"
#include "launcher/cli/other_options.h"

namespace hvd::launcher {
namespace {

constexpr double kMaxSeconds = 1e9;
constexpr int kMaxPort = 65535;
constexpr Duration kMinLease = 100ms;

// CLI11 takes the arguments from the back.
void parse(CLI::App& app, std::vector<std::string> options) {
  std::reverse(options.begin(), options.end());
  app.parse(options);
}

Duration seconds_of(const std::string& text, const char* option) {
  const auto number = parse_number<double>(text);
  if (!number || !std::isfinite(*number) || *number < 0 || *number > kMaxSeconds) {
    throw InvalidArgument(std::string(option) + " " + text + ": a number of seconds, from 0 to 1000000000");
  }
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(*number));
}

// The value of an option as typed; empty if it is not given.
std::string typed(const CLI::App& app, const std::string& name) {
  const CLI::Option& option = *app.get_option(name);
  return option.empty() ? "" : option.results().front();
}

bool is_given(const CLI::App& app, const std::string& name) { return !app.get_option(name)->empty(); }

std::optional<Duration> typed_seconds(const CLI::App& app, const char* name) {
  return is_given(app, name) ? std::optional(seconds_of(typed(app, name), name)) : std::nullopt;
}

std::vector<std::string> list_of(const std::string& text, const std::string& option) {
  std::vector<std::string> names;
  std::istringstream words(text);
  for (std::string name; std::getline(words, name, ',');) {
    if (name.empty()) throw InvalidArgument(option + " " + text + ": a name is missing");
    names.push_back(name);
  }
  return names;
}

// Accepts hvdrun's names, and the equivalent names of Hydra.
StartedBy launcher_named(const std::string& name, RemoteShell& shell) {
  if (name == "mpi") return StartedBy::mpirun;
  if (name == "local" || name == "fork") return StartedBy::local;
  if (name == "rsh" && shell.command.empty()) shell.command = "rsh";
  if (name == "ssh" || name == "rsh") return StartedBy::ssh;
  if (name == "slurm") return StartedBy::slurm;
  throw InvalidArgument("--launcher " + name + ": local, ssh, slurm or mpi");
}

void parse_launcher(const CLI::App& app, StartOptions& start) {
  const bool by_mpi = is_given(app, "--mpi"), by_gloo = is_given(app, "--gloo");
  if (by_mpi && by_gloo) throw InvalidArgument("--mpi and --gloo: the processes are started by one of them");
  const std::string name = typed(app, "--launcher");
  start.is_given = by_mpi || by_gloo || !name.empty();
  if (name.empty()) {
    start.by = by_mpi ? StartedBy::mpirun : StartedBy::automatic;
    return;
  }
  if (name == "mpi" ? by_gloo : by_mpi) {
    throw InvalidArgument("--launcher " + name + " and " + (by_mpi ? "--mpi" : "--gloo"));
  }
  start.by = launcher_named(name, start.remote_shell);
}

void parse_start(const CLI::App& app, StartOptions& start) {
  if (const std::string port = typed(app, "--ssh-port"); !port.empty()) {
    start.remote_shell.port = number_within(port, 1, kMaxPort);
    if (!start.remote_shell.port) throw InvalidArgument("--ssh-port " + port + ": a number from 1 to 65535");
  }
  if (const std::string port = typed(app, "--agent-port"); !port.empty()) {
    start.agent_port = number_within(port, 1, kMaxPort);
    if (!start.agent_port) throw InvalidArgument("--agent-port " + port + ": a number from 1 to 65535");
  }
  if (start.agents_listen() && (start.by != StartedBy::automatic || !start.remote_shell.command.empty())) {
    throw InvalidArgument("--agent-port and --agent-addresses say how hosts are reached; so do --launcher and --rsh");
  }
  for (const std::string& names : app.get_option("--network-interface")->results()) {
    for (std::string& name : list_of(names, "--network-interface")) start.interfaces.push_back(std::move(name));
  }
  start.lease = typed_seconds(app, "--lease");
  if (start.lease && *start.lease < kMinLease) throw InvalidArgument("--lease: at least 0.1 seconds");
  start.timeout = typed_seconds(app, "--start-timeout");
  if (start.timeout == Duration::zero()) start.timeout.reset();
}

// --nnodes N or N:N (torchrun's range), and --node-rank 0, which torchrun's users give for a single host.
void parse_nodes(const CLI::App& app, PlacementOptions& placement) {
  const std::string text = typed(app, "--nnodes"), rank = typed(app, "--node-rank");
  if (!text.empty()) {
    const auto colon = text.find(':');
    const std::string least = text.substr(0, colon);
    placement.nodes = number_within(least, 1);
    if (!placement.nodes) throw InvalidArgument("--nnodes " + text + ": a number of hosts");
    if (colon != std::string::npos && text.substr(colon + 1) != least) {
      throw InvalidArgument("--nnodes " + text + ": one number; --min-np and --max-np let a job grow and shrink");
    }
  }
  if (rank.empty() || (rank == "0" && placement.nodes.value_or(1) == 1)) return;
  throw InvalidArgument("--node-rank " + rank +
                        ": start hvdrun once for all hosts: hvdrun -H host1,host2 --nproc-per-node N ...");
}

// -N: the number of ranks on each host. They are not bound unless requested, as with torchrun and mpiexec.
void parse_ranks_per_host(const CLI::App& app, PlacementOptions& placement) {
  const std::string text = typed(app, "--ranks-per-host");
  if (text.empty()) return;
  if (text == "auto" || text == "gpu" || text == "cpu" || text == "core") {
    if (placement.slots_per_host) throw InvalidArgument("-N " + text + " and --slots-per-host: give one of them");
    placement.slots_per_host = SlotsRule{.each = text == "auto"  ? SlotsRule::Each::gpu_or_core
                                                 : text == "gpu" ? SlotsRule::Each::gpu
                                                                 : SlotsRule::Each::core};
    return;
  }
  placement.ranks_per_host = number_within(text, 1, kMaxSlots);
  if (!placement.ranks_per_host) throw InvalidArgument("-N " + text + ": a number of processes, auto, cpu or gpu");
  if (const std::string map_by = typed(app, "--map-by"); !map_by.empty() && !map_by.starts_with(':')) {
    throw InvalidArgument("-N and --map-by both say where ranks run: give one of them");
  }
  placement.binding.per_unit = *placement.ranks_per_host;
  placement.binding.map_by = placement.binding.bind_to.emplace(CpuUnit::node);
}

void parse_placement(const CLI::App& app, PlacementOptions& placement) {
  const auto parse = [&](const char* name, const auto& parser) {
    if (const std::string text = typed(app, name); !text.empty()) parser(text);
  };
  Binding& binding = placement.binding;
  parse("--slots-per-host", [&](const std::string& text) { placement.slots_per_host = parse_slots_rule(text); });
  parse("--gpus-per-rank", [&](const std::string& text) { placement.gpus_per_rank = parse_gpus_per_rank(text); });
  parse_nodes(app, placement);
  parse_ranks_per_host(app, placement);
  parse("--map-by", [&](const std::string& text) { parse_map_by(text, binding); });
  parse("--rank-by", [&](const std::string& text) { parse_rank_by(text, binding); });
  parse("--bind-to", [&](const std::string& text) { parse_bind_to(text, binding); });
  parse("--cpu-set", [&](const std::string& text) { placement.cpu_set = parse_cpu_set(text); });
  placement.oversubscribe |= binding.oversubscribe;
  placement.no_oversubscribe |= binding.no_oversubscribe;
  if (placement.oversubscribe && placement.no_oversubscribe) {
    throw InvalidArgument("--oversubscribe and --nooversubscribe: give one of them");
  }
  binding.overload |= placement.oversubscribe;
}

std::optional<int> typed_number(const CLI::App& app, const char* name, int lowest) {
  const std::string text = typed(app, name);
  if (text.empty()) return std::nullopt;
  const auto number = number_within(text, lowest);
  if (!number) throw InvalidArgument(std::string(name) + " " + text + ": a number from " + std::to_string(lowest));
  return number;
}

void parse_cooldown(const CLI::App& app, MembershipOptions& elastic) {
  const std::string text = typed(app, "--cooldown-range");
  if (text.empty()) return;
  const auto middle = std::min(text.find_first_of(",="), text.size() - 1);
  const auto least = number_within(text.substr(0, middle), 0), most = number_within(text.substr(middle + 1), 0);
  if (!least || !most || *most < *least) {
    throw InvalidArgument("--cooldown-range " + text + ": two numbers of seconds, MIN,MAX");
  }
  elastic.cooldown_min = std::chrono::seconds(*least);
  elastic.cooldown_max = std::chrono::seconds(*most);
}

// --cluster kubernetes: a script that stays names the pods that may be used (hvd.kubernetes).
void parse_cluster(const CLI::App& app, CommandLine& line) {
  const std::string name = typed(app, "--cluster");
  if (name.empty() && line.pod_selector.empty()) return;
  if (name.empty()) throw InvalidArgument("--pod-selector needs --cluster kubernetes");
  if (name != "kubernetes") throw InvalidArgument("--cluster " + name + ": only kubernetes is supported");
  if (line.pod_selector.empty()) throw InvalidArgument("--cluster kubernetes: which pods? --pod-selector LABELS");
  if (!line.start.agent_port) {
    throw InvalidArgument("--cluster kubernetes: at which port do the pods' agents listen? --agent-port PORT");
  }
  if (!line.discovery_script.empty() || !line.start.agent_addresses.empty()) {
    throw InvalidArgument("--cluster kubernetes finds hosts and addresses: leave out the options that name them");
  }
  std::vector<std::string> words = {
      "hvd", "pods", "--selector", line.pod_selector, "--port", std::to_string(*line.start.agent_port)};
  if (line.placement.ranks_per_host) {
    words.insert(words.end(), {"--slots", std::to_string(*line.placement.ranks_per_host)});
  }
  if (const std::string most = typed(app, "--max-np"); !most.empty()) words.insert(words.end(), {"--max-np", most});
  line.discovery_script = "exec " + shell_quoted(words);
}

constexpr std::array kOfElasticJobs = {
    "--discovery-interval", "--preemption-script", "--time-limit-margin", "--spares",
    "--elastic-timeout",    "--stopped-limit",     "--reset-limit",       "--cooldown-range"};

// A job is elastic if the user says how few or how many ranks it may have, or names a script for its hosts.
void parse_elastic(const CLI::App& app, CommandLine& line) {
  const auto min_np = typed_number(app, "--min-np", 1), max_np = typed_number(app, "--max-np", 1);
  if (!min_np && !max_np && line.discovery_script.empty()) {
    for (const char* option : kOfElasticJobs) {
      if (app.count(option) == 0) continue;
      line.notes.push_back(std::string(option) +
                           " has no effect without --min-np, --max-np or --host-discovery-script");
    }
    return;
  }
  line.discovery_interval = typed_seconds(app, "--discovery-interval").value_or(1s);
  const ProgramLine& program = line.programs.front();
  if (!line.discovery_script.empty() && !(program.hosts.empty() && program.hostfile.empty())) {
    throw InvalidArgument("--host-discovery-script and -H or --hostfile name hosts: give one of them");
  }
  MembershipOptions elastic;
  elastic.num_proc = std::max(program.num_proc.value_or(1), min_np.value_or(1));
  elastic.min_np = min_np.value_or(elastic.num_proc);
  elastic.max_np = std::min(max_np.value_or(kMaxSlots), kMaxSlots);
  elastic.spares = typed_number(app, "--spares", 0).value_or(0);
  if (elastic.spares > kMaxSlots) throw InvalidArgument("--spares: at most " + std::to_string(kMaxSlots));
  elastic.reset_limit = typed_number(app, "--reset-limit", 0);
  elastic.elastic_timeout = typed_seconds(app, "--elastic-timeout").value_or(elastic.elastic_timeout);
  parse_cooldown(app, elastic);
  line.job.time_limit_margin = typed_seconds(app, "--time-limit-margin").value_or(60s);
  elastic.fixed_hosts = line.discovery_script.empty();
  line.job.stopped_limit = typed_seconds(app, "--stopped-limit").value_or(30s);
  if (elastic.max_np < elastic.num_proc) {
    throw InvalidArgument("--max-np " + std::to_string(elastic.max_np) + ": fewer than the " +
                          std::to_string(elastic.num_proc) + " ranks that the job begins with");
  }
  if (line.programs.size() > 1) throw InvalidArgument("--min-np: an elastic job has one program");
  if (line.start.by == StartedBy::mpirun) throw InvalidArgument("--min-np: mpirun starts no elastic jobs");
  line.job.elastic = elastic;
}

void parse_servers(const CLI::App& app, CommandLine& line) {
  line.job.servers = typed_number(app, "--servers", 0).value_or(0);
  if (line.job.servers == 0) return;
  if (line.job.servers > kMaxSlots) throw InvalidArgument("--servers: at most " + std::to_string(kMaxSlots));
  if (line.start.by == StartedBy::mpirun) throw InvalidArgument("--servers: mpirun starts no servers");
}

void parse_input(const std::string& text, CommandLine& line) {
  if (text.empty()) return;
  line.input_to_all = text == "all";
  line.input_rank = number_within(text, 0);
  if (!line.input_rank && text != "all" && text != "none") {
    throw InvalidArgument("--stdin " + text + ": the number of one rank, all, or none");
  }
}

// torchrun's --tee and --redirects: 3 means both streams of all ranks.
bool is_both_streams(const CLI::App& app, const std::string& option) {
  const std::string text = typed(app, option);
  if (text == "3") return true;
  if (text.empty() || text == "0") return false;
  throw InvalidArgument(option + " " + text + ": 3, both streams of all ranks, or 0");
}

// Open MPI 5's --output LIST.
void parse_output(const std::string& list, OutputOptions& output) {
  for (const std::string& word : list_of(list, "--output")) {
    const auto equals = word.find('=');
    const std::string name = in_lower_case(word.substr(0, equals));
    if (name == "tag" || name == "tag-detailed" || name == "tag-fullname" || name == "rank") {
      output.tag = true;
    } else if (name == "timestamp") {
      output.timestamp = true;
    } else if (name == "merge" || name == "merge-stderr-to-stdout") {
      output.merge_errors = true;
    } else if ((name == "dir" || name == "directory") && equals != std::string::npos) {
      output.directory = word.substr(equals + 1);
    } else if (name == "nocopy") {
      output.files_only = true;
    } else if (name != "copy") {
      throw InvalidArgument("--output " + word + ": tag, timestamp, merge-stderr-to-stdout, dir=DIR or nocopy");
    }
  }
}

// Open MPI's "DIR:nocopy" and "DIR:nojobid", of --output-filename and --output dir=DIR.
void take_qualifiers(OutputOptions& output) {
  const auto colon = output.directory.rfind(':');
  if (colon == std::string::npos || colon == 0) return;
  const std::vector<std::string> words = hvd::split_list(in_lower_case(output.directory.substr(colon + 1)), ',');
  const auto is_known = [](const std::string& word) { return word == "nocopy" || word == "nojobid" || word == "raw"; };
  if (words.empty() || !std::ranges::all_of(words, is_known)) return;  // the folder has this name
  output.files_only |= std::ranges::find(words, "nocopy") != words.end();
  output.directory.resize(colon);
}

// Open MPI 5's --display LIST.
void parse_display(const std::string& list, CommandLine& line) {
  for (const std::string& word : list_of(list, "--display")) {
    const std::string name = in_lower_case(word.substr(0, word.find_first_of("-=")));  // map-devel, topo=HOSTS
    if (name == "topo") line.display_map = line.job.report_bindings = true;            // as --display-topo
    if (name == "bind" || name == "bindings") {
      line.job.report_bindings = true;
    } else if (name == "map" || name == "allocation" || name == "alloc") {
      line.display_map = true;
    } else if (name != "topo") {
      throw InvalidArgument("--display " + word + ": map, allocation, bind or topo");
    }
  }
}

void parse_streams(const CLI::App& app, CommandLine& line) {
  OutputOptions& output = line.job.output;
  parse_input(typed(app, "--stdin"), line);
  for (const std::string& list : app.get_option("--output")->results()) parse_output(list, output);
  take_qualifiers(output);
  parse_display(typed(app, "--display"), line);
  output.files_only |= is_both_streams(app, "--redirects");
  const bool wants_files = is_both_streams(app, "--tee") || output.files_only;
  if (wants_files && output.directory.empty()) {
    throw InvalidArgument("--tee and --redirects write to files: say where, with --output-filename DIR");
  }
}

// Decimal even with leading zeros; CLI11 would read 010 as 8.
std::optional<int> parse_number_of_processes(const std::string& text) {
  if (text.empty()) return std::nullopt;
  const auto number =
      number_within(std::string_view(text).substr(text.front() == '+' ? 1 : 0), std::numeric_limits<int>::min());
  if (!number) throw InvalidArgument("-np " + text + ": a number of processes");
  if (*number < 1) throw InvalidArgument("-np " + text + ": at least one process");
  return number;
}

void check_exports(const std::vector<std::string>& exports) {
  for (const std::string& entry : exports) {
    if (entry.empty() || entry.front() == '=') throw InvalidArgument("-x \"" + entry + "\": a name is missing");
  }
}

void check(const ProgramLine& program, bool is_one_of_several) {
  check_exports(program.exports);
  if (program.command.empty()) {
    throw InvalidArgument(is_one_of_several ? "a program is missing before or after a ':'"
                                            : "which program? For instance: hvdrun -np 4 python train.py");
  }
}

// Parses the options of one program, which are declared in `app`.
ProgramLine parse_program(CLI::App& app, ProgramLine& program, ProgramArguments& program_arguments) {
  parse(app, program_arguments.options);
  program.num_proc = parse_number_of_processes(typed(app, "--np"));
  for (const std::string& hosts : app.get_option("--host")->results()) {
    program.hosts += (program.hosts.empty() ? "" : ",") + hosts;
  }
  for (std::string& name : list_of(typed(app, "--envlist"), "--envlist")) program.exports.push_back(std::move(name));
  program.command = std::move(program_arguments.command);
  program.for_mpirun = std::move(program_arguments.for_mpirun);
  if (program.command.empty()) return program;
  const bool is_module = is_given(app, "--module"), no_python = is_given(app, "--no-python");
  if (is_module && no_python) throw InvalidArgument("-m and --no-python: give one of them");
  const bool is_script = is_given(app, "--python") && !no_python && program.command.front().ends_with(".py");
  if (!is_module && !is_script) return program;
  std::vector<std::string> python = {"python3", "-u"};
  if (is_module) python.emplace_back("-m");
  program.command.insert(program.command.begin(), python.begin(), python.end());
  return program;
}

// Throws for refused options; other diagnostics become notes.
void apply_diagnostics(const std::vector<Diagnostic>& diagnostics, CommandLine& line) {
  const auto never = line.start.by == StartedBy::mpirun ? Diagnostic::Counts::unless_mpirun_starts
                                                        : Diagnostic::Counts::if_mpirun_starts;
  for (const Diagnostic& diagnostic : diagnostics) {
    if (diagnostic.counts == never) continue;
    if (diagnostic.is_refusal) throw InvalidArgument(diagnostic.text);
    line.notes.push_back(diagnostic.text);
  }
}

std::optional<std::string> asked_for(const CLI::App& app) {
  if (is_given(app, "--version")) return "hvdrun " HVD_VERSION "\n";
  if (is_given(app, "--other-options")) return other_options_document();
  if (is_given(app, "--completion")) return completion_script(typed(app, "--completion"), app);
  return std::nullopt;
}

// The interfaces to which Open MPI's parameters restrict its TCP connections; hvd's are to be the same ones.
std::vector<std::string> interfaces_of(const std::vector<std::pair<std::string, std::string>>& mca) {
  const auto parameter = std::ranges::find(mca, "btl_tcp_if_include", &std::pair<std::string, std::string>::first);
  if (parameter == mca.end() || parameter->second.empty()) return {};
  return list_of(parameter->second, "-mca btl_tcp_if_include");
}

// Reads all programs, and the options of the job, which `app` has beside those of the first program.
std::vector<Diagnostic> read_programs(const std::vector<std::string>& arguments, CLI::App& app, ProgramLine& first,
                                      CommandLine& line) {
  ArgumentReader reader(arguments, app);
  ProgramArguments program_arguments = reader.read_program(app);
  std::vector<Diagnostic> diagnostics = program_arguments.diagnostics;
  line.programs.push_back(parse_program(app, first, program_arguments));
  while (!program_arguments.is_last) {
    CLI::App further_app;
    ProgramLine further;
    add_options_of_program(further_app, further);
    program_arguments = reader.read_program(further_app);
    diagnostics.insert(diagnostics.end(), program_arguments.diagnostics.begin(), program_arguments.diagnostics.end());
    line.programs.push_back(parse_program(further_app, further, program_arguments));
  }
  return diagnostics;
}

// Parses and checks the options of the job.
void parse_job(const CLI::App& app, const std::vector<Diagnostic>& diagnostics, CommandLine& line) {
  parse_launcher(app, line.start);
  apply_diagnostics(diagnostics, line);
  for (const ProgramLine& program : line.programs) check(program, line.programs.size() > 1);
  for (std::string& name : list_of(typed(app, "--genvlist"), "--genvlist")) line.exports.push_back(std::move(name));
  if (const std::string folder = typed(app, "--resume"); !folder.empty())
    line.exports.push_back("HVD_RESUME=" + folder);
  check_exports(line.exports);
  parse_start(app, line.start);
  for (const std::string& text : app.get_option("--mca")->results()) {
    const auto equals = text.find('=');
    if (equals == 0 || equals == std::string::npos) {
      throw InvalidArgument("--mca needs a name and a value, for instance -mca btl ^openib");
    }
    line.mca.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  if (line.start.interfaces.empty()) line.start.interfaces = interfaces_of(line.mca);
  parse_placement(app, line.placement);
  parse_streams(app, line);
  parse_cluster(app, line);
  parse_elastic(app, line);
  parse_servers(app, line);
  line.job.grace = typed_seconds(app, "--grace").value_or(1s);
  line.job.timeout = typed_seconds(app, "--timeout");
  line.gives_timeout = line.job.timeout.has_value();
  if (line.job.timeout == Duration::zero()) line.job.timeout.reset();
}

}  // namespace

bool StartOptions::agents_listen() const { return agent_port || !agent_addresses.empty(); }

CommandLine parse_command_line(const std::vector<std::string>& arguments) {
  CLI::App app;
  CommandLine line;
  ProgramLine first;
  add_options_of_program(app, first);
  add_options_of_job(app, line);
  try {
    const std::vector<Diagnostic> diagnostics = read_programs(arguments, app, first, line);
    line.information = asked_for(app);
    if (!line.information && !line.check_build) parse_job(app, diagnostics, line);
  } catch (const CLI::CallForHelp&) {
    line.information = help_text(app);
  } catch (const CLI::ParseError& error) {
    throw InvalidArgument(error.what());
  }
  return line;
}

std::vector<std::string> mpirun_arguments(const CommandLine& line, bool names_variables) {
  std::vector<std::string> words;
  for (const ProgramLine& program : line.programs) {
    if (!words.empty()) words.emplace_back(":");
    words.insert(words.end(), program.for_mpirun.begin(), program.for_mpirun.end());
    for (const std::string& entry : line.exports) {
      if (names_variables) words.insert(words.end(), {"-x", entry.substr(0, entry.find('='))});
    }
    words.insert(words.end(), program.command.begin(), program.command.end());
  }
  return words;
}

}  // namespace hvd::launcher
