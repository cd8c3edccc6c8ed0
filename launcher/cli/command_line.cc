#include "launcher/cli/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <sstream>

#include "core/base/error.h"
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

std::optional<int> number_of(const std::string& text) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(number) : std::nullopt;
}

Duration seconds_of(double value, const char* option) {
  if (!std::isfinite(value) || value < 0 || value > kMaxSeconds) {
    throw InvalidArgument(std::string(option) + ": a number of seconds, from 0 to 1000000000");
  }
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(value));
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

StartedBy parse_launcher(const Typed& typed, RemoteShell& shell) {
  if (typed.by_mpi && typed.by_gloo)
    throw InvalidArgument("--mpi and --gloo: the processes are started by one of them");
  const std::string& name = typed.launcher;
  if (name.empty()) return typed.by_mpi ? StartedBy::mpirun : StartedBy::automatic;
  if (name == "mpi" ? typed.by_gloo : typed.by_mpi) {
    throw InvalidArgument("--launcher " + name + " and " + (typed.by_mpi ? "--mpi" : "--gloo"));
  }
  return launcher_named(name, shell);
}

void parse_start(const Typed& typed, CommandLine& line) {
  line.launcher_is_given = typed.by_mpi || typed.by_gloo || !typed.launcher.empty();
  if (!typed.ssh_port.empty()) {
    line.remote_shell.port = number_of(typed.ssh_port);
    if (line.remote_shell.port.value_or(0) < 1 || *line.remote_shell.port > kMaxPort) {
      throw InvalidArgument("--ssh-port " + typed.ssh_port + ": a number from 1 to 65535");
    }
  }
  for (const std::string& names : typed.interfaces) {
    for (std::string& name : list_of(names, "--network-interface")) line.network_interfaces.push_back(std::move(name));
  }
  if (typed.lease_seconds) {
    line.lease = seconds_of(*typed.lease_seconds, "--lease");
    if (*line.lease < kMinLease) throw InvalidArgument("--lease: at least 0.1 seconds");
  }
  if (typed.start_timeout_seconds != 0) {
    line.start_timeout = seconds_of(typed.start_timeout_seconds, "--start-timeout");
  }
  if (!typed.slots_per_host.empty()) line.slots_per_host = parse_slots_rule(typed.slots_per_host);
  if (!typed.gpus_per_rank.empty()) line.gpus_per_rank = parse_gpus_per_rank(typed.gpus_per_rank);
}

// --nnodes N or N:N (torchrun's range), and --node-rank 0, which torchrun's users give for a single host.
void parse_nodes(const Typed& typed, CommandLine& line) {
  const std::string& text = typed.nodes;
  if (!text.empty()) {
    const auto colon = text.find(':');
    const std::string least = text.substr(0, colon);
    line.nodes = number_of(least);
    if (line.nodes.value_or(0) < 1) throw InvalidArgument("--nnodes " + text + ": a number of hosts");
    if (colon != std::string::npos && text.substr(colon + 1) != least) {
      throw InvalidArgument("--nnodes " + text + ": elastic jobs are not supported yet, so that it is one number");
    }
  }
  if (typed.node_rank.empty() || (typed.node_rank == "0" && line.nodes.value_or(1) == 1)) return;
  throw InvalidArgument("--node-rank " + typed.node_rank +
                        ": start hvdrun once for all hosts: hvdrun -H host1,host2 --nproc-per-node N ...");
}

// -N: the number of ranks on each host. They are not bound unless requested, as with torchrun and mpiexec.
void parse_ranks_per_host(const Typed& typed, CommandLine& line) {
  const std::string& text = typed.ranks_per_host;
  if (text.empty()) return;
  if (text == "auto" || text == "gpu" || text == "cpu" || text == "core") {
    if (line.slots_per_host) throw InvalidArgument("-N " + text + " and --slots-per-host: give one of them");
    line.slots_per_host = SlotsRule{.each = text == "auto"  ? SlotsRule::Each::gpu_or_core
                                            : text == "gpu" ? SlotsRule::Each::gpu
                                                            : SlotsRule::Each::core};
    return;
  }
  line.ranks_per_host = number_of(text);
  if (line.ranks_per_host.value_or(0) < 1 || *line.ranks_per_host > kMaxSlots) {
    throw InvalidArgument("-N " + text + ": a number of processes, auto, cpu or gpu");
  }
  if (!typed.map_by.empty()) throw InvalidArgument("-N and --map-by both say where ranks run: give one of them");
  line.binding.per_unit = *line.ranks_per_host;
  line.binding.map_by = line.binding.bind_to.emplace(CpuUnit::node);
}

void parse_placement(const Typed& typed, CommandLine& line) {
  parse_nodes(typed, line);
  if (line.oversubscribe && line.no_oversubscribe) {
    throw InvalidArgument("--oversubscribe and --nooversubscribe: give one of them");
  }
  parse_ranks_per_host(typed, line);
  if (!typed.map_by.empty()) parse_map_by(typed.map_by, line.binding);
  if (!typed.rank_by.empty()) parse_rank_by(typed.rank_by, line.binding);
  if (!typed.bind_to.empty()) parse_bind_to(typed.bind_to, line.binding);
  if (!typed.cpu_set.empty()) line.cpu_set = parse_cpu_set(typed.cpu_set);
  line.oversubscribe |= line.binding.oversubscribe;
  line.binding.overload |= line.oversubscribe;
}

void parse_input(const std::string& text, CommandLine& line) {
  line.input_to_all = text == "all";
  line.input_rank = number_of(text);
  if (line.input_rank.value_or(-1) < 0 && text != "all" && text != "none") {
    throw InvalidArgument("--stdin " + text + ": the number of one rank, all, or none");
  }
}

// torchrun's --tee and --redirects: 3 means both streams of all ranks.
bool is_both_streams(const std::string& text, const std::string& option) {
  if (text == "3") return true;
  if (text.empty() || text == "0") return false;
  throw InvalidArgument(option + " " + text + ": 3, both streams of all ranks, or 0");
}

// Open MPI 5's --output LIST.
void parse_output(const std::string& list, CommandLine& line) {
  for (const std::string& word : list_of(list, "--output")) {
    const auto equals = word.find('=');
    const std::string name = word.substr(0, equals);
    if (name == "tag" || name == "tag-detailed" || name == "tag-fullname" || name == "rank") {
      line.tag_output = true;
    } else if (name == "timestamp") {
      line.timestamp_output = true;
    } else if (name == "merge" || name == "merge-stderr-to-stdout") {
      line.merge_errors = true;
    } else if ((name == "dir" || name == "directory") && equals != std::string::npos) {
      line.output_directory = word.substr(equals + 1);
    } else if (name == "nocopy") {
      line.files_only = true;
    } else if (name != "copy") {
      throw InvalidArgument("--output " + word + ": tag, timestamp, merge-stderr-to-stdout, dir=DIR or nocopy");
    }
  }
}

// Open MPI 5's --display LIST.
void parse_display(const std::string& list, CommandLine& line) {
  for (const std::string& word : list_of(list, "--display")) {
    const std::string name = word.substr(0, word.find('-'));
    if (name == "bind" || name == "bindings") {
      line.report_bindings = true;
    } else if (name == "map" || name == "allocation" || name == "alloc") {
      line.display_map = true;
    } else {
      throw InvalidArgument("--display " + word + ": map, allocation or bind");
    }
  }
}

void parse_streams(const Typed& typed, CommandLine& line) {
  parse_input(typed.input, line);
  for (const std::string& list : typed.output) parse_output(list, line);
  parse_display(typed.display, line);
  line.files_only |= is_both_streams(typed.redirects, "--redirects");
  const bool wants_files = is_both_streams(typed.tee, "--tee") || line.files_only;
  if (wants_files && line.output_directory.empty()) {
    throw InvalidArgument("--tee and --redirects write to files: say where, with --output-filename DIR");
  }
}

std::pair<std::string, std::string> parse_mca(const std::string& text) {
  const auto equals = text.find('=');
  if (equals == 0 || equals == std::string::npos) {
    throw InvalidArgument("--mca needs a name and a value, for instance -mca btl ^openib");
  }
  return {text.substr(0, equals), text.substr(equals + 1)};
}

// Decimal even with leading zeros; CLI11 would read 010 as 8.
std::optional<int> parse_number_of_processes(const std::string& typed) {
  if (typed.empty()) return std::nullopt;
  const std::string_view digits = std::string_view(typed).substr(typed.front() == '+' ? 1 : 0);
  int number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size()) {
    throw InvalidArgument("-np " + typed + ": a number of processes");
  }
  if (number < 1) throw InvalidArgument("-np " + typed + ": at least one process");
  return number;
}

void check_exports(const std::vector<std::string>& exports) {
  for (const std::string& entry : exports) {
    if (entry.empty() || entry.front() == '=') throw InvalidArgument("-x \"" + entry + "\": a name is missing");
  }
}

void check(const ProgramLine& program, bool is_one_of_several) {
  check_exports(program.exports);
  if (!program.hosts.empty() && !program.hostfile.empty()) {
    throw InvalidArgument("-H and --hostfile say the same thing: give one of them");
  }
  if (program.command.empty()) {
    throw InvalidArgument(is_one_of_several ? "which program? There is none before or behind a colon"
                                            : "which program? For instance: hvdrun -np 4 python train.py");
  }
}

// Applies the options of one program.
void finish(const TypedOfProgram& typed, Share& share, ProgramLine& program) {
  program.num_proc = parse_number_of_processes(typed.num_proc);
  for (std::string& name : list_of(typed.envlist, "--envlist")) program.exports.push_back(std::move(name));
  program.command = std::move(share.command);
  program.for_mpirun = std::move(share.for_mpirun);
  if (program.command.empty()) return;
  if (typed.module && typed.no_python) throw InvalidArgument("-m and --no-python: give one of them");
  const bool is_script = typed.python && !typed.no_python && program.command.front().ends_with(".py");
  if (!typed.module && !is_script) return;
  std::vector<std::string> python = {"python3", "-u"};
  if (typed.module) python.emplace_back("-m");
  program.command.insert(program.command.begin(), python.begin(), python.end());
}

// Throws for refused options; other remarks become notes.
void heed(const std::vector<Remark>& remarks, CommandLine& line) {
  const auto never =
      line.started_by == StartedBy::mpirun ? Remark::Counts::unless_mpirun_starts : Remark::Counts::if_mpirun_starts;
  for (const Remark& remark : remarks) {
    if (remark.counts == never) continue;
    if (remark.is_refusal) throw InvalidArgument(remark.text);
    line.notes.push_back(remark.text);
  }
}

std::optional<std::string> asked_for(const Typed& typed, const CLI::App& app) {
  if (typed.version) return "hvdrun " HVD_VERSION "\n";
  if (typed.other_options) return other_options_document();
  if (!typed.completion.empty()) return completion_script(typed.completion, app);
  return std::nullopt;
}

// Reads all programs, and the options of the job into `typed`.
std::vector<Remark> read_programs(const std::vector<std::string>& arguments, CLI::App& app, Typed& typed,
                                  ProgramLine& first, TypedOfProgram& typed_of_first) {
  ArgumentReader reader(arguments, app);
  Share share = reader.take_share(app);
  parse(app, share.options);
  std::vector<Remark> remarks = std::move(share.remarks);
  bool is_last = share.is_last;
  finish(typed_of_first, share, first);
  typed.line.programs.push_back(std::move(first));
  while (!is_last) {
    CLI::App further_app;
    ProgramLine further;
    TypedOfProgram typed_of_further;
    add_options_of_program(further_app, further, typed_of_further);
    share = reader.take_share(further_app);
    parse(further_app, share.options);
    remarks.insert(remarks.end(), share.remarks.begin(), share.remarks.end());
    is_last = share.is_last;
    finish(typed_of_further, share, further);
    typed.line.programs.push_back(std::move(further));
  }
  return remarks;
}

}  // namespace

CommandLine parse_command_line(const std::vector<std::string>& arguments) {
  CLI::App app;
  Typed typed;
  ProgramLine first;
  TypedOfProgram typed_of_first;
  add_options_of_program(app, first, typed_of_first);
  add_options_of_job(app, typed);
  CommandLine& line = typed.line;
  std::vector<Remark> remarks;
  try {
    remarks = read_programs(arguments, app, typed, first, typed_of_first);
  } catch (const CLI::CallForHelp&) {
    line.information = help_text(app);
    return line;
  } catch (const CLI::ParseError& error) {
    throw InvalidArgument(error.what());
  }
  line.information = asked_for(typed, app);
  if (line.information || line.check_build) return line;
  line.started_by = parse_launcher(typed, line.remote_shell);
  heed(remarks, line);
  for (const ProgramLine& program : line.programs) check(program, line.programs.size() > 1);
  for (std::string& name : list_of(typed.genvlist, "--genvlist")) line.exports.push_back(std::move(name));
  check_exports(line.exports);
  parse_start(typed, line);
  for (const std::string& parameter : typed.mca) line.mca.push_back(parse_mca(parameter));
  parse_placement(typed, line);
  parse_streams(typed, line);
  line.grace = seconds_of(typed.grace_seconds, "--grace");
  if (typed.timeout_seconds != 0) line.timeout = seconds_of(typed.timeout_seconds, "--timeout");
  return line;
}

std::vector<std::string> mpirun_arguments(const CommandLine& line) {
  std::vector<std::string> words;
  for (const ProgramLine& program : line.programs) {
    if (!words.empty()) words.emplace_back(":");
    words.insert(words.end(), program.for_mpirun.begin(), program.for_mpirun.end());
    const bool names_hosts = !program.hosts.empty() || !program.hostfile.empty();
    for (const std::string& entry : line.exports) {
      if (names_hosts) words.insert(words.end(), {"-x", entry.substr(0, entry.find('='))});
    }
    words.insert(words.end(), program.command.begin(), program.command.end());
  }
  return words;
}

}  // namespace hvd::launcher
