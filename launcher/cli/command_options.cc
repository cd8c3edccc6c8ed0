#include "launcher/cli/command_options.h"

#include <CLI/CLI.hpp>

namespace hvd::launcher {
namespace {

constexpr std::size_t kColumn = 42;  // of the descriptions

const char* const kUsage = "Usage: hvdrun -np N [options] program [arguments] [: -np N [options] program ...]";

const char* const kExplanation =
    R"(Options of horovodrun, mpirun, mpiexec and torchrun are understood, too: hvdrun --other-options lists them.

Examples: four processes of one script, with a variable of their own and their output also in files; eight processes
on two hosts; a script as torchrun would start it
  hvdrun -np 4 -x OMP_NUM_THREADS=1 --output-filename logs python train.py --epochs 3
  hvdrun -np 8 -H node1:4,node2:4 python train.py
  hvdrun --nproc-per-node 4 train.py

Every process finds its place in HVD_RANK, HVD_SIZE, HVD_LOCAL_RANK, HVD_LOCAL_SIZE (and in the HOROVOD_* variables
of the same names). The first process that fails decides hvdrun's exit code: its own, or 128 + the signal that killed
it. Python buffers output to a pipe in blocks of about 8 KB; -x PYTHONUNBUFFERED=1 shows each line at once. A colon
separates programs; each has its own "What to start" options.)";

// A group of options in --help. An option without a group is accepted, but not shown.
class Group {
 public:
  Group(CLI::App& app, std::string title) : app_(app), title_(std::move(title)) {}

  template <typename Value>
  CLI::Option* value(const char* names, Value& target, const char* kind, const char* text) {
    return app_.add_option(names, target, text)->option_text(kind)->group(title_);
  }

  CLI::Option* value(const char* names, const char* kind, const std::string& text) {
    return app_.add_option(names, text)->option_text(kind)->group(title_);
  }

  CLI::Option* repeatable(const char* names, std::vector<std::string>& target, const char* kind, const char* text) {
    return value(names, target, kind, text)->allow_extra_args(false);
  }
  CLI::Option* repeatable(const char* names, const char* kind, const char* text) {
    return value(names, kind, text)->expected(1, CLI::detail::expected_max_vector_size)->allow_extra_args(false);
  }

  CLI::Option* flag(const char* names, bool& target, const char* text) {
    return app_.add_flag(names, target, text)->group(title_);
  }
  CLI::Option* flag(const char* names, const std::string& text) { return app_.add_flag(names, text)->group(title_); }

 private:
  CLI::App& app_;
  std::string title_;
};

void add_job_options(CLI::App& app, CommandLine& line) {
  Group job(app, "The job");
  job.value("-N,--ranks-per-host", "N|auto|cpu|gpu", "Processes on each host: N, or one for each core or GPU");
  job.value("--servers", "N", "Also start N parameter servers, which run the same program");
  job.value("--nnodes", "N", "Use the first N of the hosts");
  job.flag("--nolocal", line.placement.no_local, "Start nothing on this host");
  job.flag("--oversubscribe", line.placement.oversubscribe, "Allow more processes than slots");
  job.flag("--nooversubscribe", line.placement.no_oversubscribe,
           "Never exceed the slots, nor this host's number of cores");
  job.value("--slots-per-host", "N|core|hwthread|gpu",
            "Slots of hosts without a number. Default: 1 with -H, else one per core");
  job.repeatable("--genv", line.exports, "VAR=VALUE", "Set a variable for all programs; repeatable");
  job.value("--config-file", line.config_file, "FILE", "Settings in YAML, with the keys of Horovod's file");
  job.repeatable("--mca,--gmca", "NAME VALUE", "A parameter of Open MPI, for its library; repeatable");
  job.value("--timeout", "SECONDS", "End the job after this time, with exit code 124");
  job.flag("--dry-run", line.dry_run, "Print what would be started, where and how; start nothing");
  job.flag("--display-map", line.display_map, "Print what --dry-run prints, and start it");
}

void add_elastic_options(CLI::App& app, CommandLine& line) {
  Group elastic(app, "Elastic jobs, whose ranks may change (docs/elastic.md)");
  elastic.value("--min-np", "N", "Minimum number of ranks: continue after failures while N remain");
  elastic.value("--max-np", "N", "Maximum number of ranks. Default: all slots");
  elastic.value("--host-discovery-script", line.discovery_script, "COMMAND",
                "Prints the hosts that may be used, as lines HOST:SLOTS; run repeatedly");
  elastic.value("--discovery-interval", "SECONDS", "Seconds between runs of the discovery script. Default: 1");
  elastic.value("--cluster", "kubernetes", "The hosts are pods: watch them; with --max-np, request more");
  elastic.value("--pod-selector", line.pod_selector, "LABELS",
                "Which pods: job-name=workers, app=train,tier!=web, ...");
  elastic.value("--preemption-script", line.job.preemption_script, "COMMAND",
                "Run on each host every 2 s: exit code 0 says that it is about to be taken away");
  elastic.value("--time-limit-margin", "SECONDS",
                "Save and end this long before Slurm's allocation ends. Default: 60; 0: do not");
  elastic.value("--spares", "N", "Keep N extra processes ready. Default: 0");
  elastic.value("--elastic-timeout", "SECONDS", "How long to wait for enough ranks. Default: 600");
  elastic.value("--stopped-limit", "SECONDS", "Kill a process that is stopped for longer. Default: 30; 0: never");
  elastic.value("--resume", "DIR", "Continue from the newest checkpoint there, and write more (hvd.checkpoint)");
  elastic.value("--reset-limit", "N", "End the job when its ranks have changed more often");
  elastic.value("--cooldown-range", "MIN,MAX",
                "Seconds without new processes on a host where one failed. Default: 1,300");
}

void add_start_options(CLI::App& app, CommandLine& line) {
  Group start(app, "How hosts are reached");
  start.value("--launcher", "local|ssh|slurm|mpi", "Who starts processes: hvdrun, ssh, srun, or mpirun");
  start.flag("--mpi", "The same as --launcher mpi");
  start.flag("--gloo", "hvdrun, ssh or srun, and not mpirun; the default");
  start.value("--rsh", line.start.remote_shell.command, "COMMAND",
              "Instead of ssh: host and command are appended to it");
  start.value("--agent-port", "PORT", "Agents listen on the hosts: hvdrun agent --listen PORT");
  start.value("--agent-addresses", line.start.agent_addresses, "FILE",
              "File with the agents' addresses, one host per line: HOST ADDRESS:PORT");
  start.value("-p,--ssh-port", "PORT", "Port of the ssh servers");
  start.value("-i,--ssh-identity-file", line.start.remote_shell.identity_file, "FILE", "The private key for ssh");
  start.repeatable("--network-interface", "NAME,...",
                   "Interfaces or networks (10.1.0.0/16) to use between hosts, all at once");
  start.value("--start-timeout", "SECONDS", "For all hosts and processes to start. Default: 30");
  start.value("--lease", "SECONDS", "A host that is silent for this long is lost. Default: 5");
}

void add_binding_options(CLI::App& app, CommandLine& line) {
  Group binding(app, "Where ranks run");
  binding.value("--bind-to", "none|UNIT", "UNIT: core, hwthread, numa or socket. Default: none");
  binding.value("--map-by", "slot|node|UNIT",
                "Assign ranks round-robin to these; also ppr:N:UNIT and :PE=N. Default: slot");
  binding.value("--rank-by", "slot|node|UNIT", "How ranks are numbered. Default: as they are mapped");
  binding.value("--cpu-set", "LIST", "Use only these CPUs of each host: 0-3,8");
  binding.flag("--report-bindings", line.job.report_bindings, "Print the CPUs on which each rank may run");
  binding.value("--gpus-per-rank", "N|auto", "GPUs visible to each rank, or auto: an even share");
}

void add_stream_options(CLI::App& app, CommandLine& line) {
  Group streams(app, "Input and output");
  streams.value("--stdin", "RANK|all|none", "Who reads hvdrun's standard input. Default: rank 0");
  streams.value("--output-filename", line.job.output.directory, "DIR",
                "Write output also to DIR/rank.N/stdout and stderr");
  streams.value("-r,--redirects", "0|3", "3: write output only to those files");
  streams.value("-t,--tee", "0|3", "3: write it to both, as --output-filename does anyway");
  streams.flag("--tag-output", line.job.output.tag, "Begin every line with [rank]<stdout>: or [rank]<stderr>:");
  streams.flag("--timestamp-output", line.job.output.timestamp, "Begin every line with the time");
  streams.flag("--merge-stderr-to-stdout", line.job.output.merge_errors,
               "One stream for both, in the order of writing");
  streams.flag("-v,--verbose", line.job.verbose, "Print what is started, where, and how it ends");
  streams.flag("-q,--quiet", line.quiet, "Print errors only");
}

void add_about_options(CLI::App& app, CommandLine& line) {
  Group about(app, "About hvdrun");
  app.set_help_flag("-h,--help", "Print this text")->group("About hvdrun");
  about.flag("--check-build", line.check_build, "Run hvd doctor: what is installed, and whether it works");
  about.flag("--other-options", "Print how other launchers' options are treated, as Markdown");
  about.value("--completion", "bash|zsh", "Print a script that completes hvdrun's options there");
  about.flag("--version", "Print hvdrun's version");
}

// Options for users who know them from other launchers.
void add_hidden_options(CLI::App& app) {
  Group silent(app, "");
  silent.flag("--allow-run-as-root", "");
  silent.value("--node-rank", "0", "");
  silent.value("--genvlist", "VAR,...", "");
  silent.value("--display", "map|allocation|bind", "");
  silent.repeatable("--output", "LIST", "");
}

}  // namespace

void add_options_of_program(CLI::App& app, ProgramLine& program) {
  Group what(app, "What to start");
  what.value("-n,-c,--np", "N", "Number of processes; -np N as with mpirun");
  what.repeatable("-H,--host", "HOST:N,...",
                  "Hosts and their slots; repeatable. Default: the allocation, or this host");
  what.value("--hostfile,--machinefile", program.hostfile, "FILE",
             "The same, a host a line: \"HOST slots=N\" or \"HOST:N\"");
  what.repeatable("-x,--env", program.exports, "VAR=VALUE",
                  "Set a variable for every process, or pass it on: -x VAR; repeatable");
  what.value("--wdir,--wd", program.working_directory, "DIR", "Start the processes in this folder");
  what.flag("-m,--module", "The program is a Python module: python3 -u -m runs it");
  what.flag("--python", "A program *.py is a script: python3 -u runs it");
  what.flag("--no-python", "Run the program itself, even with torchrun's options");
  Group silent(app, "");
  silent.value("--envlist", "VAR,...", "");
}

void add_options_of_job(CLI::App& app, CommandLine& line) {
  add_job_options(app, line);
  add_elastic_options(app, line);
  add_start_options(app, line);
  add_binding_options(app, line);
  add_stream_options(app, line);
  Group(app, "How the job ends")
      .value("--grace", "SECONDS", "Time from the first failure to SIGTERM; SIGKILL 2 s later. Default: 1");
  add_about_options(app, line);
  add_hidden_options(app);
}

// CLI11's table of options, without the parts that it derives from positionals and subcommands.
std::string help_text(const CLI::App& app) {
  CLI::Formatter formatter;
  formatter.column_width(kColumn);
  std::string options = formatter.make_groups(&app, CLI::AppFormatMode::Normal);
  for (auto gap = options.find("\n\n\n"); gap != std::string::npos; gap = options.find("\n\n\n")) options.erase(gap, 1);
  return std::string(kUsage) + "\n" + options + "\n" + kExplanation + "\n";
}

}  // namespace hvd::launcher
