#include "launcher/command_options.h"

#include <CLI/CLI.hpp>

namespace hvd::launcher {
namespace {

const char* const kUsage = "Usage: hvdrun -np N [options] program [arguments] [: -np N [options] program ...]";

const char* const kExplanation =
    R"(Examples: four processes of one script, with a variable of their own and their output also in files; eight processes
on two hosts
  hvdrun -np 4 -x OMP_NUM_THREADS=1 --output-filename logs python train.py --epochs 3
  hvdrun -np 8 -H node1:4,node2:4 python train.py

Every process finds its place in HVD_RANK, HVD_SIZE, HVD_LOCAL_RANK, HVD_LOCAL_SIZE (and in the HOROVOD_* variables
of the same names). The first process that fails decides hvdrun's exit code: its own, or 128 + the signal that killed
it. Python keeps output that goes to a pipe back until about 8 KB have come together; -x PYTHONUNBUFFERED=1 shows each
line at once. Behind a colon comes another program of the same job, with options of its own (those of "What to start").)";

void add_options_of_whole(CLI::App& app, Typed& typed) {
  CommandLine& line = typed.line;
  const char* const job = "The job";
  app.add_flag("--oversubscribe", line.oversubscribe, "More processes than slots are all right")->group(job);
  app.add_option("--slots-per-host", typed.slots_per_host,
                 "Slots of hosts for which no number is given: so many, or one for\n"
                 "each core (default) or gpu")
      ->option_text("N|core|gpu")
      ->group(job);
  app.add_option("--timeout", typed.timeout_seconds, "End the job after so long; hvdrun's exit code is then 124")
      ->option_text("SECONDS")
      ->group(job);
  app.add_option("--mca,--gmca", typed.mca, "A parameter of Open MPI, which its library finds in OMPI_MCA_NAME")
      ->option_text("NAME VALUE")
      ->allow_extra_args(false)
      ->group(job);
  app.add_flag("--dry-run", line.dry_run, "Print what would be started, where and how, and start nothing")->group(job);
  app.add_flag("--allow-run-as-root", typed.run_as_root, "For mpirun's sake: hvdrun may be run by anybody")->group(job);
}

void add_options_of_hosts(CLI::App& app, Typed& typed) {
  CommandLine& line = typed.line;
  const char* const start = "How hosts are reached";
  app.add_option("--launcher", typed.launcher,
                 "By what processes are started: local, hvdrun itself, where this is\n"
                 "the only host (default then); slurm, srun (default for the hosts\n"
                 "that Slurm has allocated); ssh (default else); mpi, the mpirun on\n"
                 "the PATH, with the same options")
      ->option_text("local|ssh|slurm|mpi")
      ->group(start);
  app.add_flag("--mpi", typed.by_mpi, "Horovod's name for --launcher mpi")->group(start);
  app.add_flag("--gloo", typed.by_gloo, "Horovod's name for not --mpi")->group(start);
  app.add_option("--rsh", line.remote_shell.command,
                 "Instead of ssh: a command to which host and command are appended;\n"
                 "-mca plm_rsh_agent COMMAND is the same")
      ->option_text("COMMAND")
      ->group(start);
  app.add_option("-p,--ssh-port", typed.ssh_port, "Where ssh is listened for")->option_text("PORT")->group(start);
  app.add_option("-i,--ssh-identity-file", line.remote_shell.identity_file, "The private key for ssh")
      ->option_text("FILE")
      ->group(start);
  app.add_option("--network-interface,--network-interfaces", typed.interfaces,
                 "Between hosts, use only these network interfaces of each. Default:\n"
                 "by whatever they reach each other")
      ->option_text("NAME,...")
      ->group(start);
  app.add_option("--start-timeout", typed.start_timeout_seconds,
                 "How long to wait for all hosts and processes to start. Default: 30")
      ->option_text("SECONDS")
      ->group(start);
  app.add_option("--lease", typed.lease_seconds, "After so long a silence a host counts as lost. Default: 5")
      ->option_text("SECONDS")
      ->group(start);
}

void add_options_of_binding(CLI::App& app, Typed& typed) {
  CommandLine& line = typed.line;
  const char* const binding = "Where ranks run";
  app.add_option("--bind-to", typed.bind_to,
                 "none (default, but with PE and ppr), core, hwthread, numa or socket;\n"
                 ":overload-allowed")
      ->option_text("UNIT")
      ->group(binding);
  app.add_option("--map-by", typed.map_by,
                 "slot (default), core, hwthread, numa, socket or node: of which\n"
                 "ranks take their places in turn, by node from host to host, else\n"
                 "host by host; ppr:N:UNIT: N of each; :PE=N: N cores for each rank")
      ->option_text("UNIT")
      ->group(binding);
  app.add_option("--rank-by", typed.rank_by,
                 "In which order places are numbered: slot, host by host; node, round\n"
                 "the hosts; core, numa, ... round those of a host. Default: as they\n"
                 "are mapped")
      ->option_text("UNIT")
      ->group(binding);
  app.add_flag("--report-bindings", line.report_bindings, "Say on which CPUs each rank may run")->group(binding);
  app.add_option("--gpus-per-rank", typed.gpus_per_rank,
                 "Let each rank of a host see so many GPUs of its own\n"
                 "(CUDA_VISIBLE_DEVICES), or with auto an even share. Default: as it\n"
                 "is, so that a rank chooses by its local rank")
      ->option_text("N|auto")
      ->group(binding);
}

void add_options_of_streams(CLI::App& app, Typed& typed) {
  CommandLine& line = typed.line;
  const char* const streams = "Input and output";
  app.add_option("--stdin", typed.input, "Who reads hvdrun's standard input. Default: rank 0")
      ->option_text("RANK|all|none")
      ->group(streams);
  app.add_option("--output-filename", line.output_directory,
                 "Write output also to DIR/rank.<N>/stdout and, unless both are one\n"
                 "stream, DIR/rank.<N>/stderr")
      ->option_text("DIR")
      ->group(streams);
  app.add_flag("--tag-output", line.tag_output,
               "Begin every line with [rank]<stdout>: or [rank]<stderr>:, on a\n"
               "terminal in the rank's colour, unless NO_COLOR is set")
      ->group(streams);
  app.add_flag("--timestamp-output,--prefix-output-with-timestamp", line.timestamp_output,
               "Begin every line with the time")
      ->group(streams);
  app.add_flag("--merge-stderr-to-stdout", line.merge_errors, "One stream for both, in the order of writing")
      ->group(streams);
  app.add_flag("-v,--verbose", line.verbose, "Say what is started, where, and how it ends")->group(streams);
}

void add_options_of_end(CLI::App& app, Typed& typed) {
  app.add_option("--grace", typed.grace_seconds,
                 "Time to end by oneself after another process has failed, or after\n"
                 "Ctrl-C; then SIGTERM, and SIGKILL 2 s later. Default: 1")
      ->option_text("SECONDS")
      ->group("End");

  app.set_help_flag("-h,--help", "Print this text")->group("About hvdrun");
  app.add_flag("--check-build", typed.line.check_build, "What is installed, and whether it works: hvd doctor")
      ->group("About hvdrun");
  app.add_flag("--version", typed.version, "Print hvdrun's version")->group("About hvdrun");
}

}  // namespace

void add_options_of_program(CLI::App& app, ProgramLine& program, std::string& typed_number) {
  const char* const group = "What to start";
  app.add_option("-n,-c,--np,--num-proc", typed_number, "Number of processes; -np N as with mpirun")
      ->option_text("N")
      ->group(group);
  app.add_option("-H,--host,--hosts", program.hosts,
                 "Hosts and their slots, for instance node1:4,me@node2:4; one without\n"
                 "a number has one. Default: what Slurm, LSF, PBS or Kubernetes's\n"
                 "mpi-operator has allocated, else this host")
      ->option_text("HOST:N,...")
      ->group(group);
  app.add_option("--hostfile,--machinefile", program.hostfile,
                 "The same, a host a line: \"HOST slots=N\" or \"HOST:N\"; one without\n"
                 "a number has what --slots-per-host says")
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
  add_options_of_whole(app, typed);
  add_options_of_hosts(app, typed);
  add_options_of_binding(app, typed);
  add_options_of_streams(app, typed);
  add_options_of_end(app, typed);
}

// Lets CLI11 write the table of options, without the parts that it derives from positionals and subcommands.
std::string help_text(const CLI::App& app) {
  CLI::Formatter formatter;
  formatter.column_width(34);
  std::string options = formatter.make_groups(&app, CLI::AppFormatMode::Normal);
  for (auto gap = options.find("\n\n\n"); gap != std::string::npos; gap = options.find("\n\n\n")) options.erase(gap, 1);
  return std::string(kUsage) + "\n" + options + "\n" + kExplanation + "\n";
}

}  // namespace hvd::launcher
