#include "launcher/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <sstream>

#include "core/base/error.h"
#include "launcher/command_options.h"
#include "launcher/nearest_name.h"

namespace hvd::launcher {
namespace {

constexpr double kMaxSeconds = 1e9;
constexpr int kMaxPort = 65535;
constexpr Duration kMinLease = 100ms;
constexpr const char* kNextProgram = ":";

// One program's share of the arguments.
struct Share {
  std::vector<std::string> options;     // with two dashes before every long one
  std::vector<std::string> for_mpirun;  // as they were typed, but those that only hvdrun has; and the command
  std::vector<std::string> command;
  bool is_last = true;
};

// "-np" and "-np=4" become "--np" and "--np=4" if there is such an option; "-n4" stays.
std::string with_two_dashes(const CLI::App& app, const std::string& argument) {
  if (argument.size() < 3 || argument[1] == '-') return argument;
  const std::string candidate = "-" + argument.substr(0, argument.find('='));
  return app.get_option_no_throw(candidate) != nullptr ? "-" + argument : argument;
}

[[noreturn]] void refuse(const CLI::App& app, const CLI::App& first_app, const std::string& argument) {
  const std::string of_job = with_two_dashes(first_app, argument);
  if (first_app.get_option_no_throw(of_job.substr(0, of_job.find('='))) != nullptr) {
    throw InvalidArgument(argument + " is for the whole job: it stands before the first program");
  }
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back(name);
  }
  const auto first = argument.find_first_not_of('-');
  const std::string typed = first == std::string::npos ? "" : argument.substr(first, argument.find('=') - first);
  const auto nearest = nearest_name(typed, names);
  throw InvalidArgument(
      "unknown option " + argument +
      (nearest ? "; did you mean --" + *nearest + "?" : " (the program's own options stand behind its name)"));
}

// "-n4", "-xA=1" and "-Hlocalhost:4"; but -xterm and -nolocal are other options, with one dash. One letter alone is
// fine.
bool has_attached_value(const std::string& argument) {
  if (argument.size() == 2) return true;
  const std::string value = argument.substr(2);
  switch (argument[1]) {
    case 'n':
    case 'c': return std::isdigit(static_cast<unsigned char>(value.front())) != 0;
    case 'x': return value.find('=') != std::string::npos;
    case 'H': return value.find(':') != std::string::npos;
    case 'p': return std::isdigit(static_cast<unsigned char>(value.front())) != 0;
    default: return false;
  }
}

using Argument = std::vector<std::string>::const_iterator;

std::string take_value(const CLI::Option& option, const std::string& name, Argument& next, Argument end) {
  if (next == end || next->empty()) throw InvalidArgument(name + " needs a value: " + option.get_option_text());
  return *next++;
}

// What mpirun would not understand.
bool is_only_hvdruns(const std::string& name) {
  constexpr const char* kNames[] = {"--launcher",
                                    "--mpi",
                                    "--gloo",
                                    "--grace",
                                    "--lease",
                                    "--rsh",
                                    "--start-timeout",
                                    "--slots-per-host",
                                    "--ssh-port",
                                    "-p",
                                    "--network-interface",
                                    "--network-interfaces",
                                    "-i",
                                    "--ssh-identity-file",
                                    "--dry-run",
                                    "--gpus-per-rank"};
  return std::ranges::find(kNames, name) != std::end(kNames);
}

// The value is attached to its option, so that it may begin with a dash. Stops behind the colon that ends the share.
// `app` has the options of this program, `first_app` those of the first one and of the job.
Share take_share(const CLI::App& app, const CLI::App& first_app, Argument& next, Argument end) {
  Share share;
  while (next != end && next->size() > 1 && next->front() == '-' && *next != "--") {
    const Argument typed = next;
    std::string argument = with_two_dashes(app, *next++);
    const bool is_long = argument.starts_with("--");
    if (!is_long && !has_attached_value(argument)) refuse(app, first_app, argument);
    const auto equals = is_long ? argument.find('=') : std::string::npos;
    const std::string name = is_long ? argument.substr(0, equals) : argument.substr(0, 2);
    const CLI::Option* option = app.get_option_no_throw(name);
    if (option == nullptr) refuse(app, first_app, argument);
    const bool takes_value = option->get_expected_min() > 0;
    const bool is_attached = is_long ? equals != std::string::npos : argument.size() > 2;
    if (takes_value && !is_attached) {
      argument += (is_long ? "=" : "") + take_value(*option, name, next, end);
      if (name == "--mca" || name == "--gmca") argument += "=" + take_value(*option, name, next, end);
    }
    share.options.push_back(argument);
    if (name == "--prefix-output-with-timestamp") {
      share.for_mpirun.emplace_back("--timestamp-output");
    } else if (!is_only_hvdruns(name)) {
      share.for_mpirun.insert(share.for_mpirun.end(), typed, next);
    }
  }
  if (next != end && *next == "--") ++next;
  const Argument colon = std::find(next, end, kNextProgram);
  share.command.assign(next, colon);
  share.for_mpirun.insert(share.for_mpirun.end(), next, colon);
  share.is_last = colon == end;
  next = share.is_last ? end : colon + 1;
  return share;
}

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

StartedBy parse_launcher(const Typed& typed) {
  if (typed.by_mpi && typed.by_gloo)
    throw InvalidArgument("--mpi and --gloo: the processes are started by one of them");
  const std::string& name = typed.launcher;
  if (name.empty()) return typed.by_mpi ? StartedBy::mpirun : StartedBy::automatic;
  if (name == "mpi" ? typed.by_gloo : typed.by_mpi) {
    throw InvalidArgument("--launcher " + name + " and " + (typed.by_mpi ? "--mpi" : "--gloo"));
  }
  if (name == "mpi") return StartedBy::mpirun;
  if (name == "local") return StartedBy::local;
  if (name == "ssh") return StartedBy::ssh;
  if (name == "slurm") return StartedBy::slurm;
  throw InvalidArgument("--launcher " + name + ": local, ssh, slurm or mpi");
}

void parse_start(const Typed& typed, CommandLine& line) {
  line.started_by = parse_launcher(typed);
  if (!typed.ssh_port.empty()) {
    line.remote_shell.port = number_of(typed.ssh_port);
    if (line.remote_shell.port.value_or(0) < 1 || *line.remote_shell.port > kMaxPort) {
      throw InvalidArgument("--ssh-port " + typed.ssh_port + ": a number from 1 to 65535");
    }
  }
  std::istringstream names(typed.interfaces);
  for (std::string name; std::getline(names, name, ',');) {
    if (name.empty()) throw InvalidArgument("--network-interface " + typed.interfaces + ": a name is missing");
    line.network_interfaces.push_back(name);
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

void parse_input(const std::string& text, CommandLine& line) {
  line.input_to_all = text == "all";
  line.input_rank = number_of(text);
  if (line.input_rank.value_or(-1) < 0 && text != "all" && text != "none") {
    throw InvalidArgument("--stdin " + text + ": the number of one rank, all, or none");
  }
}

std::pair<std::string, std::string> parse_mca(const std::string& text) {
  const auto equals = text.find('=');
  if (equals == 0 || equals == std::string::npos) {
    throw InvalidArgument("--mca needs a name and a value, for instance -mca btl ^openib");
  }
  return {text.substr(0, equals), text.substr(equals + 1)};
}

// Decimal, whatever zeros it begins with. CLI11 would take 010 for 8.
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

void check(const ProgramLine& program, bool is_one_of_several) {
  for (const std::string& entry : program.exports) {
    if (entry.empty() || entry.front() == '=') throw InvalidArgument("-x \"" + entry + "\": a name is missing");
  }
  if (!program.hosts.empty() && !program.hostfile.empty()) {
    throw InvalidArgument("-H and --hostfile say the same thing: give one of them");
  }
  if (program.command.empty()) {
    throw InvalidArgument(is_one_of_several ? "which program? There is none before or behind a colon"
                                            : "which program? For instance: hvdrun -np 4 python train.py");
  }
}

}  // namespace

CommandLine parse_command_line(const std::vector<std::string>& arguments) {
  CLI::App app;
  Typed typed;
  add_options_of_program(app, typed.program, typed.num_proc);
  add_options_of_job(app, typed);
  CommandLine& line = typed.line;
  Argument next = arguments.begin();
  try {
    Share share = take_share(app, app, next, arguments.end());
    parse(app, share.options);
    line.for_mpirun = share.for_mpirun;
    typed.program.command = std::move(share.command);
    typed.program.num_proc = parse_number_of_processes(typed.num_proc);
    line.programs.push_back(std::move(typed.program));
    while (!share.is_last) {
      CLI::App further_app;
      ProgramLine further;
      std::string num_proc;
      add_options_of_program(further_app, further, num_proc);
      share = take_share(further_app, app, next, arguments.end());
      line.for_mpirun.emplace_back(kNextProgram);
      line.for_mpirun.insert(line.for_mpirun.end(), share.for_mpirun.begin(), share.for_mpirun.end());
      parse(further_app, share.options);
      further.command = std::move(share.command);
      further.num_proc = parse_number_of_processes(num_proc);
      line.programs.push_back(std::move(further));
    }
  } catch (const CLI::CallForHelp&) {
    line.information = help_text(app);
    return line;
  } catch (const CLI::ParseError& error) {
    throw InvalidArgument(error.what());
  }
  if (typed.version) {
    line.information = "hvdrun " HVD_VERSION "\n";
    return line;
  }
  if (line.check_build) return line;
  for (const ProgramLine& program : line.programs) check(program, line.programs.size() > 1);
  parse_start(typed, line);
  for (const std::string& parameter : typed.mca) line.mca.push_back(parse_mca(parameter));
  if (!typed.map_by.empty()) parse_map_by(typed.map_by, line.binding);
  if (!typed.rank_by.empty()) parse_rank_by(typed.rank_by, line.binding);
  if (!typed.bind_to.empty()) parse_bind_to(typed.bind_to, line.binding);
  line.oversubscribe |= line.binding.oversubscribe;
  line.binding.overload |= line.oversubscribe;
  parse_input(typed.input, line);
  line.grace = seconds_of(typed.grace_seconds, "--grace");
  if (typed.timeout_seconds != 0) line.timeout = seconds_of(typed.timeout_seconds, "--timeout");
  return line;
}

}  // namespace hvd::launcher
