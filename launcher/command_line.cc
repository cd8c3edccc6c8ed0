#include "launcher/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>

#include "core/base/error.h"

namespace hvd::launcher {
namespace {

constexpr double kMaxGraceSeconds = 1e6;

const char* const kUsage = "Usage: hvdrun -np N [options] program [arguments]";

const char* const kExplanation =
    R"(Example: four processes of one script, with a variable of their own and their output also in files
  hvdrun -np 4 -x OMP_NUM_THREADS=1 --output-filename logs python train.py --epochs 3

Every process finds its place in HVD_RANK, HVD_SIZE, HVD_LOCAL_RANK, HVD_LOCAL_SIZE (and in the HOROVOD_* variables
of the same names). Rank 0 reads hvdrun's standard input. The first process that fails decides hvdrun's exit code:
its own, or 128 + the signal that killed it. Python keeps output that goes to a pipe back until about 8 KB have come
together; -x PYTHONUNBUFFERED=1 shows each line at once.)";

struct Options {
  CommandLine line;
  double grace_seconds = 1;
  bool version = false;
};

void add_options(CLI::App& app, Options& options) {
  CommandLine& line = options.line;
  app.add_option("-n,--np,--num-proc", line.num_proc, "Number of processes; -np N as with mpirun")
      ->option_text("N")
      ->group("What to start");
  app.add_option("-H,--host,--hosts", line.hosts, "Slots per host, for instance localhost:4; this host alone")
      ->option_text("HOST:N,...")
      ->group("What to start");
  app.add_option("-x", line.exports, "Set a variable for every process, or pass on the present value; repeatable")
      ->option_text("VAR[=VALUE]")
      ->allow_extra_args(false)
      ->group("What to start");

  app.add_option("--output-filename", line.output_directory,
                 "Write output also to DIR/rank.<N>/stdout and DIR/rank.<N>/stderr")
      ->option_text("DIR")
      ->group("Output");
  app.add_flag("--tag-output", line.tag_output, "Begin every line with [rank]<stdout>: or [rank]<stderr>:")
      ->group("Output");
  app.add_flag("--verbose", line.verbose, "Say what is started, where, and how it ends")->group("Output");

  app.add_option("--grace", options.grace_seconds,
                 "Time to end by oneself after another process has failed, or after\n"
                 "Ctrl-C; then SIGTERM, and SIGKILL 2 s later. Default: 1")
      ->option_text("SECONDS")
      ->group("End");

  app.set_help_flag("-h,--help", "Print this text")->group("About hvdrun");
  app.add_flag("--version", options.version, "Print hvdrun's version")->group("About hvdrun");
}

// Lets CLI11 write the table of options, without the parts that it derives from positionals and subcommands.
std::string help_text(const CLI::App& app) {
  CLI::Formatter formatter;
  formatter.column_width(34);
  std::string options = formatter.make_groups(&app, CLI::AppFormatMode::Normal);
  for (auto gap = options.find("\n\n\n"); gap != std::string::npos; gap = options.find("\n\n\n")) options.erase(gap, 1);
  return std::string(kUsage) + "\n" + options + "\n" + kExplanation + "\n";
}

struct SplitArguments {
  std::vector<std::string> own;  // with two dashes before every long option
  std::vector<std::string> program;
};

// "-np" and "-np=4" become "--np" and "--np=4" if there is such an option; "-n4" stays.
std::string with_two_dashes(const CLI::App& app, const std::string& argument) {
  if (argument.size() < 3 || argument[1] == '-') return argument;
  const std::string candidate = "-" + argument.substr(0, argument.find('='));
  return app.get_option_no_throw(candidate) != nullptr ? "-" + argument : argument;
}

// The value is attached to its option, so that it may begin with a dash.
SplitArguments split_arguments(const CLI::App& app, const std::vector<std::string>& arguments) {
  SplitArguments result;
  auto next = arguments.begin();
  while (next != arguments.end() && next->size() > 1 && next->front() == '-' && *next != "--") {
    std::string argument = with_two_dashes(app, *next++);
    const bool is_long = argument.starts_with("--");
    const auto equals = is_long ? argument.find('=') : std::string::npos;
    const std::string name = is_long ? argument.substr(0, equals) : argument.substr(0, 2);
    const CLI::Option* option = app.get_option_no_throw(name);
    if (option == nullptr) {
      throw InvalidArgument("unknown option " + argument + " (the program's own options stand behind its name)");
    }
    const bool takes_value = option->get_expected_min() > 0;
    const bool is_attached = is_long ? equals != std::string::npos : argument.size() > 2;
    if (takes_value && !is_attached) {
      if (next == arguments.end() || next->empty()) {
        throw InvalidArgument(name + " needs a value: " + option->get_option_text());
      }
      argument += (is_long ? "=" : "") + *next++;
    }
    result.own.push_back(argument);
  }
  if (next != arguments.end() && *next == "--") ++next;
  result.program.assign(next, arguments.end());
  return result;
}

void check(const Options& options) {
  const CommandLine& line = options.line;
  if (line.num_proc && *line.num_proc < 1) {
    throw InvalidArgument("-np " + std::to_string(*line.num_proc) + ": at least one process");
  }
  if (!std::isfinite(options.grace_seconds) || options.grace_seconds < 0 || options.grace_seconds > kMaxGraceSeconds) {
    throw InvalidArgument("--grace: a number of seconds, 0 or more");
  }
  for (const std::string& entry : line.exports) {
    if (entry.empty() || entry.front() == '=') throw InvalidArgument("-x \"" + entry + "\": a name is missing");
  }
  if (line.program.empty()) throw InvalidArgument("which program? For instance: hvdrun -np 4 python train.py");
}

}  // namespace

CommandLine parse_command_line(const std::vector<std::string>& arguments) {
  CLI::App app;
  Options options;
  add_options(app, options);

  SplitArguments split = split_arguments(app, arguments);
  options.line.program = std::move(split.program);
  try {
    std::reverse(split.own.begin(), split.own.end());  // CLI11 takes the arguments from the back
    app.parse(split.own);
  } catch (const CLI::CallForHelp&) {
    options.line.information = help_text(app);
    return options.line;
  } catch (const CLI::ParseError& error) {
    throw InvalidArgument(error.what());
  }
  if (options.version) {
    options.line.information = "hvdrun " HVD_VERSION "\n";
    return options.line;
  }
  check(options);
  options.line.grace = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(options.grace_seconds));
  return options.line;
}

}  // namespace hvd::launcher
