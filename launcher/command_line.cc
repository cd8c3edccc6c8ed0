#include "launcher/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

#include "core/base/error.h"
#include "launcher/nearest_name.h"

namespace hvd::launcher {
namespace {

constexpr double kMaxSeconds = 1e9;
constexpr const char* kNextProgram = ":";

const char* const kUsage = "Usage: hvdrun -np N [options] program [arguments] [: -np N [options] program ...]";

const char* const kExplanation =
    R"(Example: four processes of one script, with a variable of their own and their output also in files
  hvdrun -np 4 -x OMP_NUM_THREADS=1 --output-filename logs python train.py --epochs 3

Every process finds its place in HVD_RANK, HVD_SIZE, HVD_LOCAL_RANK, HVD_LOCAL_SIZE (and in the HOROVOD_* variables
of the same names). The first process that fails decides hvdrun's exit code: its own, or 128 + the signal that killed
it. Python keeps output that goes to a pipe back until about 8 KB have come together; -x PYTHONUNBUFFERED=1 shows each
line at once. Behind a colon comes another program of the same job, with options of its own (those of "What to start").)";

// What was typed, before it is known to be right.
struct Typed {
  CommandLine line;
  ProgramLine program;
  std::string num_proc;
  std::vector<std::string> mca;  // "name=value"
  std::string input = "0";
  std::string bind_to, map_by, rank_by;
  std::string launcher;
  bool by_mpi = false, by_gloo = false;
  double timeout_seconds = 0;
  double grace_seconds = 1;
  bool run_as_root = false;
  bool version = false;
};

// `typed_number`: of processes.
void add_options_of_program(CLI::App& app, ProgramLine& program, std::string& typed_number) {
  const char* const group = "What to start";
  app.add_option("-n,-c,--np,--num-proc", typed_number, "Number of processes; -np N as with mpirun")
      ->option_text("N")
      ->group(group);
  app.add_option("-H,--host,--hosts", program.hosts, "Slots per host, for instance localhost:4; this host alone")
      ->option_text("HOST:N,...")
      ->group(group);
  app.add_option("--hostfile,--machinefile", program.hostfile,
                 "The same, a host a line: \"HOST slots=N\" or \"HOST:N\"")
      ->option_text("FILE")
      ->group(group);
  app.add_option("-x", program.exports, "Set a variable for every process, or pass on the present value; repeatable")
      ->option_text("VAR[=VALUE]")
      ->allow_extra_args(false)
      ->group(group);
  app.add_option("--wdir,--wd", program.working_directory, "Start the processes in this folder")
      ->option_text("DIR")
      ->group(group);
}

void add_options_of_job(CLI::App& app, Typed& typed) {
  CommandLine& line = typed.line;
  const char* const job = "The job";
  app.add_flag("--oversubscribe", line.oversubscribe, "More processes than slots are all right")->group(job);
  app.add_option("--timeout", typed.timeout_seconds, "End the job after so long; hvdrun's exit code is then 124")
      ->option_text("SECONDS")
      ->group(job);
  app.add_option("--mca,--gmca", typed.mca, "A parameter of Open MPI, which its library finds in OMPI_MCA_NAME")
      ->option_text("NAME VALUE")
      ->allow_extra_args(false)
      ->group(job);
  app.add_option("--launcher", typed.launcher,
                 "Who starts the processes: local (default), hvdrun itself, on this\n"
                 "machine; mpi, the mpirun on the PATH, with the same options")
      ->option_text("local|mpi")
      ->group(job);
  app.add_flag("--mpi", typed.by_mpi, "Horovod's name for --launcher mpi")->group(job);
  app.add_flag("--gloo", typed.by_gloo, "Horovod's name for --launcher local")->group(job);
  app.add_flag("--allow-run-as-root", typed.run_as_root, "For mpirun's sake: hvdrun may be run by anybody")->group(job);

  const char* const binding = "Where ranks run";
  app.add_option("--bind-to", typed.bind_to,
                 "none (default, but with PE and ppr), core, hwthread, numa or socket;\n"
                 ":overload-allowed")
      ->option_text("UNIT")
      ->group(binding);
  app.add_option("--map-by", typed.map_by,
                 "slot (default), core, hwthread, numa, socket or node: of which\n"
                 "ranks that are bound take their places in turn; ppr:N:UNIT: N of\n"
                 "each; :PE=N: N cores for each rank")
      ->option_text("UNIT")
      ->group(binding);
  app.add_option("--rank-by", typed.rank_by, "In which order places are numbered; slot (default): as they are mapped")
      ->option_text("UNIT")
      ->group(binding);
  app.add_flag("--report-bindings", line.report_bindings, "Say on which CPUs each rank may run")->group(binding);

  const char* const streams = "Input and output";
  app.add_option("--stdin", typed.input, "Who reads hvdrun's standard input. Default: rank 0")
      ->option_text("RANK|none")
      ->group(streams);
  app.add_option("--output-filename", line.output_directory,
                 "Write output also to DIR/rank.<N>/stdout and, unless both are one\n"
                 "stream, DIR/rank.<N>/stderr")
      ->option_text("DIR")
      ->group(streams);
  app.add_flag("--tag-output", line.tag_output, "Begin every line with [rank]<stdout>: or [rank]<stderr>:")
      ->group(streams);
  app.add_flag("--timestamp-output", line.timestamp_output, "Begin every line with the time")->group(streams);
  app.add_flag("--merge-stderr-to-stdout", line.merge_errors, "One stream for both, in the order of writing")
      ->group(streams);
  app.add_flag("-v,--verbose", line.verbose, "Say what is started, where, and how it ends")->group(streams);

  app.add_option("--grace", typed.grace_seconds,
                 "Time to end by oneself after another process has failed, or after\n"
                 "Ctrl-C; then SIGTERM, and SIGKILL 2 s later. Default: 1")
      ->option_text("SECONDS")
      ->group("End");

  app.set_help_flag("-h,--help", "Print this text")->group("About hvdrun");
  app.add_flag("--check-build", line.check_build, "What is installed, and whether it works: hvd doctor")
      ->group("About hvdrun");
  app.add_flag("--version", typed.version, "Print hvdrun's version")->group("About hvdrun");
}

// Lets CLI11 write the table of options, without the parts that it derives from positionals and subcommands.
std::string help_text(const CLI::App& app) {
  CLI::Formatter formatter;
  formatter.column_width(34);
  std::string options = formatter.make_groups(&app, CLI::AppFormatMode::Normal);
  for (auto gap = options.find("\n\n\n"); gap != std::string::npos; gap = options.find("\n\n\n")) options.erase(gap, 1);
  return std::string(kUsage) + "\n" + options + "\n" + kExplanation + "\n";
}

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
    default: return false;
  }
}

using Argument = std::vector<std::string>::const_iterator;

std::string take_value(const CLI::Option& option, const std::string& name, Argument& next, Argument end) {
  if (next == end || next->empty()) throw InvalidArgument(name + " needs a value: " + option.get_option_text());
  return *next++;
}

bool is_only_hvdruns(const std::string& name) {
  return name == "--launcher" || name == "--mpi" || name == "--gloo" || name == "--grace";
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
    if (!is_only_hvdruns(name)) share.for_mpirun.insert(share.for_mpirun.end(), typed, next);
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

Duration seconds_of(double value, const char* option) {
  if (!std::isfinite(value) || value < 0 || value > kMaxSeconds) {
    throw InvalidArgument(std::string(option) + ": a number of seconds, from 0 to 1000000000");
  }
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(value));
}

StartedBy parse_launcher(const Typed& typed) {
  if (typed.by_mpi && typed.by_gloo)
    throw InvalidArgument("--mpi and --gloo: the processes are started by one of them");
  std::string name = typed.by_mpi ? "mpi" : "local";
  if (!typed.launcher.empty()) {
    if ((typed.by_mpi || typed.by_gloo) && typed.launcher != name) {
      throw InvalidArgument("--launcher " + typed.launcher + " and " + (typed.by_mpi ? "--mpi" : "--gloo"));
    }
    name = typed.launcher;
  }
  if (name == "mpi") return StartedBy::mpirun;
  if (name == "local") return StartedBy::hvdrun;
  if (name == "ssh" || name == "slurm") {
    throw InvalidArgument("--launcher " + name +
                          ": hvdrun starts processes on this machine only, so far; on several, " +
                          (name == "ssh" ? "use --launcher mpi" : "use srun itself, or --launcher mpi"));
  }
  throw InvalidArgument("--launcher " + name + ": local or mpi");
}

std::optional<int> parse_input(const std::string& text) {
  if (text == "none") return std::nullopt;
  int rank = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rank);
  if (error != std::errc() || end != text.data() + text.size() || rank < 0) {
    throw InvalidArgument("--stdin " + text + ": the number of one rank, or none");
  }
  return rank;
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
  line.started_by = parse_launcher(typed);
  for (const std::string& parameter : typed.mca) line.mca.push_back(parse_mca(parameter));
  if (!typed.map_by.empty()) parse_map_by(typed.map_by, line.binding);
  if (!typed.rank_by.empty()) parse_rank_by(typed.rank_by, line.binding);
  if (!typed.bind_to.empty()) parse_bind_to(typed.bind_to, line.binding);
  line.binding.overload |= line.oversubscribe;
  line.input_rank = parse_input(typed.input);
  line.grace = seconds_of(typed.grace_seconds, "--grace");
  if (typed.timeout_seconds != 0) line.timeout = seconds_of(typed.timeout_seconds, "--timeout");
  return line;
}

}  // namespace hvd::launcher
