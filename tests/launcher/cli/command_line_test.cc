#include "launcher/cli/command_line.h"

#include <sstream>

#include "core/base/error.h"
#include "tests/support/catch.h"

namespace hvd::launcher {
namespace {

using Arguments = std::vector<std::string>;

TEST_CASE("what makes a job elastic") {
  const auto elastic = [](const std::vector<std::string>& arguments) {
    return parse_command_line(arguments).job.elastic;
  };
  CHECK_FALSE(elastic({"-np", "4", "ls"}));
  const CommandLine fixed = parse_command_line({"-np", "4", "--reset-limit", "3", "--preemption-script", "s", "ls"});
  CHECK_FALSE(fixed.job.elastic);
  const std::string unless = " has no effect without --min-np, --max-np or --host-discovery-script";
  CHECK(fixed.notes == std::vector<std::string>{"--preemption-script" + unless, "--reset-limit" + unless});
  const auto shrinks = elastic({"-np", "4", "--min-np", "2", "ls"});
  REQUIRE(shrinks);
  CHECK((shrinks->num_proc == 4 && shrinks->min_np == 2 && shrinks->max_np == kMaxSlots && shrinks->spares == 0));
  CHECK(elastic({"--max-np", "2147483647", "--spares", "1000000", "ls"})->max_np == kMaxSlots);  // their sum is an int
  const auto grows = elastic({"-np", "4", "--max-np", "8", "--spares", "1", "--reset-limit", "3", "ls"});
  REQUIRE(grows);
  CHECK((grows->num_proc == 4 && grows->min_np == 4 && grows->max_np == 8 && grows->spares == 1));
  CHECK(grows->reset_limit == 3);
  const auto discovered =
      elastic({"--host-discovery-script", "hosts.sh", "--blacklist-cooldown-range", "2", "9", "ls"});
  REQUIRE(discovered);
  CHECK((discovered->num_proc == 1 && discovered->cooldown_min == 2s && discovered->cooldown_max == 9s));
}

TEST_CASE("the number of processes is understood in every spelling") {
  const Arguments spellings[] = {
      {"-np", "4"},       {"--np", "4"}, {"-n", "4"}, {"-n4"},      {"--n", "4"}, {"--num-proc", "4"},
      {"-num-proc", "4"}, {"--np=4"},    {"-np=4"},   {"-n", "+4"}, {"-c", "4"},  {"-c4"},
      {"-np", "004"},     {"-n=4"},      {"-c=4"}};
  for (Arguments arguments : spellings) {
    INFO(arguments.front());
    arguments.push_back("ls");
    const CommandLine line = parse_command_line(arguments);
    REQUIRE(line.programs.size() == 1);
    CHECK(line.programs.front().num_proc == 4);
    CHECK(line.programs.front().command == Arguments{"ls"});
  }
}

TEST_CASE("everything from the program's name on is the program's") {
  struct Row {
    Arguments arguments, program;
  };
  const Row rows[] = {
      {{"-np", "2", "python", "-x", "a.py", "-np", "3", "--help"}, {"python", "-x", "a.py", "-np", "3", "--help"}},
      {{"-np", "2", "--", "--odd", "-x"}, {"--odd", "-x"}},
      {{"-np", "2", "a", "--", "b"}, {"a", "--", "b"}},
      {{"-x", "-np", "-np", "1", "prog", ""}, {"prog", ""}},
      {{"--tag-output", "prog", "--verbose"}, {"prog", "--verbose"}},
  };
  for (const Row& row : rows) CHECK(parse_command_line(row.arguments).programs.front().command == row.program);
}

TEST_CASE("options arrive where they belong") {
  const CommandLine line = parse_command_line({"-host",
                                               "localhost:3",
                                               "-x",
                                               "A",
                                               "-xB=1",
                                               "-x",
                                               "C=[1,2] \"x\"",
                                               "-x",
                                               "D=",
                                               "-x",
                                               "E=a=b",
                                               "-wdir",
                                               "/tmp",
                                               "-output-filename",
                                               "logs dir",
                                               "-tag-output",
                                               "-timestamp-output",
                                               "-merge-stderr-to-stdout",
                                               "-stdin",
                                               "2",
                                               "-timeout",
                                               "90",
                                               "-oversubscribe",
                                               "-allow-run-as-root",
                                               "-v",
                                               "--grace",
                                               "0.25",
                                               "prog"});
  const ProgramLine& program = line.programs.front();
  CHECK_FALSE(program.num_proc.has_value());
  CHECK(program.hosts == "localhost:3");
  CHECK(program.exports == Arguments{"A", "B=1", "C=[1,2] \"x\"", "D=", "E=a=b"});
  CHECK(program.working_directory == "/tmp");
  CHECK(line.job.output.directory == "logs dir");
  CHECK((line.job.output.tag && line.job.output.timestamp && line.job.output.merge_errors &&
         line.placement.oversubscribe && line.job.verbose));
  CHECK(line.input_rank == 2);
  CHECK(line.job.timeout == 90s);
  CHECK(line.job.grace == 250ms);
  CHECK_FALSE(line.information.has_value());
  CHECK(parse_command_line({"-machinefile", "hosts", "prog"}).programs.front().hostfile == "hosts");
  CHECK(parse_command_line({"-stdin=none", "prog"}).input_rank == std::nullopt);
}

TEST_CASE("the hosts of several -H add up, as with mpirun") {
  CHECK(parse_command_line({"-H", "a:16", "-H", "b:16,c", "--hosts", "d", "ls"}).programs.front().hosts ==
        "a:16,b:16,c,d");
}

TEST_CASE("a time that is no number is named, with what it may be") {
  CHECK_THROWS_WITH(parse_command_line({"--timeout", "5m", "prog"}),
                    "--timeout 5m: a number of seconds, from 0 to 1000000000");
  CHECK_THROWS_WITH(parse_command_line({"--lease", "nan", "prog"}),
                    "--lease nan: a number of seconds, from 0 to 1000000000");
  CHECK_THROWS_WITH(parse_command_line({"--grace=-1", "prog"}),
                    "--grace -1: a number of seconds, from 0 to 1000000000");
  CHECK(parse_command_line({"--timeout", "1e2", "prog"}).job.timeout == 100s);
}

TEST_CASE("what is not given has its default") {
  const CommandLine line = parse_command_line({"prog"});
  const ProgramLine& program = line.programs.front();
  CHECK_FALSE(program.num_proc.has_value());
  CHECK(program.hosts.empty());
  CHECK(program.hostfile.empty());
  CHECK(program.exports.empty());
  CHECK(program.working_directory.empty());
  CHECK(line.mca.empty());
  CHECK(line.job.output.directory.empty());
  CHECK_FALSE((line.job.output.tag || line.job.output.timestamp || line.job.output.merge_errors ||
               line.placement.oversubscribe || line.job.verbose));
  CHECK(line.input_rank == 0);
  CHECK_FALSE(line.job.timeout.has_value());
  CHECK(line.job.grace == 1s);
  CHECK(line.start.by == StartedBy::automatic);
  CHECK(line.start.remote_shell.command.empty());
  CHECK_FALSE(line.start.remote_shell.port.has_value());
  CHECK(line.start.interfaces.empty());
  CHECK_FALSE(line.start.timeout.has_value());
  CHECK_FALSE(line.start.lease);
  CHECK_FALSE((line.dry_run || line.input_to_all));
  CHECK_FALSE(line.placement.slots_per_host.has_value());
  CHECK_FALSE(line.placement.gpus_per_rank.has_value());
}

TEST_CASE("parameters of Open MPI have a name and a value") {
  using Mca = std::vector<std::pair<std::string, std::string>>;
  const CommandLine line = parse_command_line({"-mca", "pml", "ob1", "--mca", "btl", "^openib", "-gmca", "a", "-b=c",
                                               "-np", "4", "-x", "PATH", "python", "train.py"});
  CHECK(line.mca == Mca{{"pml", "ob1"}, {"btl", "^openib"}, {"a", "-b=c"}});
  CHECK(line.programs.front().num_proc == 4);
  CHECK(line.programs.front().command == Arguments{"python", "train.py"});
}

TEST_CASE("a restriction of Open MPI's connections to some interfaces is one of hvd's, too") {
  using Names = std::vector<std::string>;
  const auto interfaces = [](Arguments options) {
    options.emplace_back("ls");
    return parse_command_line(options).start.interfaces;
  };
  CHECK(interfaces({"-mca", "btl_tcp_if_include", "eth1,ib0"}) == Names{"eth1", "ib0"});
  CHECK(interfaces({"-mca", "btl_tcp_if_include", "10.1.0.0/16"}) == Names{"10.1.0.0/16"});
  CHECK(interfaces({"-mca", "btl_tcp_if_include", "eth1", "--network-interface", "eth2"}) == Names{"eth2"});
  CHECK(interfaces({"-mca", "btl_tcp_if_exclude", "lo"}).empty());
}

TEST_CASE("mpirun may start the processes, and gets what is its own") {
  const std::vector<std::string> typed = {"--launcher", "mpi", "-np",   "2", "--grace=3", "-mca", "btl",
                                          "^openib",    "a",   "--mpi", ":", "-np",       "1",    "b"};
  const CommandLine line = parse_command_line(typed);
  CHECK(line.start.by == StartedBy::mpirun);
  CHECK(mpirun_arguments(line, true) ==
        std::vector<std::string>{"-np", "2", "-mca", "btl", "^openib", "a", "--mpi", ":", "-np", "1", "b"});
  CHECK(parse_command_line({"-np", "1", "a"}).start.by == StartedBy::automatic);
  CHECK(parse_command_line({"--gloo", "-np", "1", "a"}).start.by == StartedBy::automatic);
  CHECK(parse_command_line({"--gloo", "--launcher", "ssh", "-np", "1", "a"}).start.by == StartedBy::ssh);
  CHECK(parse_command_line({"-launcher=local", "-np", "1", "a"}).start.by == StartedBy::local);
  CHECK(parse_command_line({"-launcher=slurm", "-np", "1", "a"}).start.by == StartedBy::slurm);
  CHECK(parse_command_line({"--mpi", "-np", "1", "a"}).start.by == StartedBy::mpirun);
  CHECK(parse_command_line({"--mpi", "--launcher", "mpi", "-np", "1", "a"}).start.by == StartedBy::mpirun);
  CHECK_THROWS_WITH(parse_command_line({"--launcher", "pigeon", "-np", "1", "a"}),
                    "--launcher pigeon: local, ssh, slurm or mpi");
  CHECK_THROWS_AS(parse_command_line({"--mpi", "--gloo", "-np", "1", "a"}), InvalidArgument);
  CHECK_THROWS_AS(parse_command_line({"--mpi", "--launcher", "local", "-np", "1", "a"}), InvalidArgument);
}

TEST_CASE("mpirun is not told what only hvdrun understands") {
  const CommandLine line = parse_command_line({"--mpi",
                                               "--rsh",
                                               "rsh",
                                               "-p",
                                               "22",
                                               "-i",
                                               "key",
                                               "--start-timeout=9",
                                               "--lease",
                                               "3",
                                               "--slots-per-host",
                                               "gpu",
                                               "--network-interface",
                                               "eth0",
                                               "--gpus-per-rank",
                                               "1",
                                               "--prefix-output-with-timestamp",
                                               "-np",
                                               "2",
                                               "a"});
  CHECK(mpirun_arguments(line, true) == Arguments{"--timestamp-output", "-np", "2", "a"});
  CHECK(line.notes.size() == 8);
  CHECK(line.notes.front() == "--rsh has no effect with --mpi: mpirun has no such option");
}

TEST_CASE("how hosts are reached is said by options") {
  const CommandLine line =
      parse_command_line({"--rsh", "my rsh -v", "-p2222", "--ssh-identity-file", "key", "-network-interface",
                          "eth0,ib0", "--start-timeout", "90", "--lease=0.5", "--dry-run", "--slots-per-host", "gpu",
                          "--gpus-per-rank", "auto", "--prefix-output-with-timestamp", "-stdin", "all", "prog"});
  CHECK(line.start.remote_shell.command == "my rsh -v");
  CHECK(line.start.remote_shell.port == 2222);
  CHECK(line.start.remote_shell.identity_file == "key");
  CHECK(line.start.interfaces == Arguments{"eth0", "ib0"});
  CHECK(line.start.timeout == 90s);
  CHECK(line.start.lease == 500ms);
  CHECK((line.dry_run && line.job.output.timestamp && line.input_to_all));
  CHECK_FALSE(line.input_rank.has_value());
  CHECK(line.placement.slots_per_host->each == SlotsRule::Each::gpu);
  REQUIRE(line.placement.gpus_per_rank.has_value());
  CHECK_FALSE(line.placement.gpus_per_rank->number.has_value());
  CHECK(parse_command_line({"-map-by", "slot:OVERSUBSCRIBE", "prog"}).placement.oversubscribe);
  CHECK(parse_command_line({"-p", "22", "prog"}).start.remote_shell.port == 22);
}

TEST_CASE("behind a colon comes another program") {
  const CommandLine line = parse_command_line({"-np", "1", "-tag-output", "-x", "A=1", "server", "-np", "9", ":", "-n",
                                               "3", "-wdir", "/tmp", "-x", "B=2", "client", "--verbose", ":", "third"});
  REQUIRE(line.programs.size() == 3);
  CHECK(line.job.output.tag);
  CHECK_FALSE(line.job.verbose);
  CHECK(line.programs[0].num_proc == 1);
  CHECK(line.programs[0].exports == Arguments{"A=1"});
  CHECK(line.programs[0].command == Arguments{"server", "-np", "9"});
  CHECK(line.programs[1].num_proc == 3);
  CHECK(line.programs[1].working_directory == "/tmp");
  CHECK(line.programs[1].exports == Arguments{"B=2"});
  CHECK(line.programs[1].command == Arguments{"client", "--verbose"});
  CHECK_FALSE(line.programs[2].num_proc.has_value());
  CHECK(line.programs[2].command == Arguments{"third"});
}

TEST_CASE("variables are set as mpiexec writes it, too") {
  const CommandLine line =
      parse_command_line({"-genv", "A",  "1", "--genv",   "B=2", "-genvlist", "C,D", "-env", "E", "",  "--env",
                          "F=x=y", "-x", "G", "-envlist", "H",   "a",         ":",   "-env", "E", "5", "b"});
  CHECK(line.exports == Arguments{"A=1", "B=2", "C", "D"});
  CHECK(line.programs[0].exports == Arguments{"E=", "F=x=y", "G", "H"});
  CHECK(line.programs[1].exports == Arguments{"E=5"});
  // Without "=" the next word is the value, as in mpiexec: --help must not promise that these pass a variable on.
  CHECK(parse_command_line({"--env", "A", "b", "c"}).programs[0].exports == Arguments{"A=b"});
  CHECK(parse_command_line({"--help"}).information->find("VAR[=VALUE]") == std::string::npos);
}

TEST_CASE("short options take a value behind an equals sign, too") {
  CHECK(parse_command_line({"-x=A=1", "-x=B", "ls"}).programs[0].exports == Arguments{"A=1", "B"});
  CHECK(parse_command_line({"-H=a:2", "ls"}).programs[0].hosts ==
        parse_command_line({"-H", "a:2", "ls"}).programs[0].hosts);
}

TEST_CASE("modules, and scripts where torchrun's options stand, are run by Python") {
  struct Row {
    Arguments arguments, command;
  };
  const Row rows[] = {
      {{"-m", "a.b", "-m"}, {"python3", "-u", "-m", "a.b", "-m"}},
      {{"--nproc-per-node=2", "-m", "a.b"}, {"python3", "-u", "-m", "a.b"}},
      {{"--nproc-per-node=2", "a.py", "x"}, {"python3", "-u", "a.py", "x"}},
      {{"--standalone", "a.py"}, {"python3", "-u", "a.py"}},
      {{"--python", "-np", "2", "a.py"}, {"python3", "-u", "a.py"}},
      {{"--nproc-per-node=2", "python", "a.py"}, {"python", "a.py"}},
      {{"--nproc-per-node=2", "--no_python", "a.py"}, {"a.py"}},
      {{"-np", "2", "a.py"}, {"a.py"}},
  };
  for (const Row& row : rows) {
    INFO(row.arguments.front());
    CHECK(parse_command_line(row.arguments).programs.front().command == row.command);
  }
}

TEST_CASE("torchrun's and Open MPI 5's words for output") {
  const CommandLine line = parse_command_line({"--log-dir", "logs", "-r3", "ls"});
  CHECK(line.job.output.directory == "logs");
  CHECK(line.job.output.files_only);
  CHECK_FALSE(parse_command_line({"--log-dir", "logs", "-t", "3", "ls"}).job.output.files_only);
  const CommandLine listed = parse_command_line(
      {"--output", "tag,dir=d,nocopy", "--output", "timestamp,merge", "--display", "map,bind", "ls"});
  CHECK(listed.job.output.directory == "d");
  CHECK((listed.job.output.tag && listed.job.output.files_only && listed.job.output.timestamp &&
         listed.job.output.merge_errors));
  CHECK((listed.display_map && listed.job.report_bindings));
  const CommandLine capital = parse_command_line(
      {"--output", "TAG,DIR=Dir", "--display", "MAP-DEVEL,BIND", "--map-by", ":NOOVERSUBSCRIBE", "ls"});
  CHECK(capital.job.output.tag);
  CHECK(capital.job.output.directory == "Dir");
  CHECK((capital.display_map && capital.job.report_bindings && capital.placement.no_oversubscribe));
  CHECK(parse_command_line({"--display", "topo", "ls"}).display_map);
  CHECK(parse_command_line({"-N", "4", "--map-by", ":OVERSUBSCRIBE", "ls"}).placement.oversubscribe);
  struct OfFiles {
    const char *given, *directory;
    bool files_only;
  };
  for (const OfFiles& row :
       {OfFiles{"d:nocopy", "d", true}, OfFiles{"d:nojobid", "d", false}, OfFiles{"d:nojobid,nocopy", "d", true},
        OfFiles{"d:e", "d:e", false}, OfFiles{"d:", "d:", false}, OfFiles{"a:b:NOCOPY", "a:b", true}}) {
    const OutputOptions output = parse_command_line({"--output-filename", row.given, "ls"}).job.output;
    CHECK(output.directory == row.directory);
    CHECK(output.files_only == row.files_only);
  }
  CHECK(parse_command_line({"--output", "tag,dir=d:nocopy", "ls"}).job.output.files_only);
  CHECK(parse_command_line({"-launcher", "rsh", "ls"}).start.remote_shell.command == "rsh");
  CHECK(parse_command_line({"-bootstrap", "fork", "ls"}).start.by == StartedBy::local);
  CHECK(parse_command_line({"-master-port", "1", "-q", "ls"}).exports == Arguments{"MASTER_PORT=1"});
}

TEST_CASE("--help has a line for each option") {
  const std::string text = *parse_command_line({"--help"}).information;
  std::istringstream lines(text.substr(0, text.find("Options of horovodrun")));
  std::size_t options = 0;
  for (std::string line; std::getline(lines, line);) {
    INFO(line);
    CHECK(line.size() <= 120);
    const bool is_heading = line.empty() || line.ends_with(":") || line.starts_with("Usage");
    CHECK((is_heading || line.starts_with("  -")));
    if (line.starts_with("  -")) ++options;
  }
  CHECK(options > 40);
}

TEST_CASE("--help and --version say something and need no program") {
  CHECK(parse_command_line({"--version"}).information == "hvdrun " HVD_VERSION "\n");
  for (const char* flag : {"--help", "-h", "-help"}) {
    const auto text = parse_command_line({flag}).information;
    REQUIRE(text.has_value());
    for (const char* part : {"Usage: hvdrun -np N", "--output-filename DIR", "--grace SECONDS", "--mca",
                             "--rsh COMMAND", "hvdrun -np 4 "}) {
      CHECK(text->find(part) != std::string::npos);
    }
  }
}

TEST_CASE("hvdrun --check-build needs no program") {
  CHECK(parse_command_line({"--check-build"}).check_build);
  CHECK_FALSE(parse_command_line({"ls", "--check-build"}).check_build);
}

TEST_CASE("a wrong command line is an error that names what is wrong") {
  struct Row {
    Arguments arguments;
    std::string in_message;
  };
  const Row rows[] = {
      {{}, "which program"},
      {{"-np", "2"}, "which program"},
      {{"-np", "2", "--"}, "which program"},
      {{"-np"}, "--np needs a value"},
      {{"-np", "", "ls"}, "--np needs a value"},
      {{"-np", "0", "ls"}, "at least one"},
      {{"-np", "-3", "ls"}, "at least one"},
      {{"-np", "four", "ls"}, "four"},
      {{"-np", "99999999999", "ls"}, "99999999999"},
      {{"-np", "2", "--oversubcsribe", "ls"}, "unknown option --oversubcsribe; did you mean --oversubscribe?"},
      {{"-np", "2", "-tag-ouput", "ls"}, "unknown option -tag-ouput; did you mean --tag-output?"},
      {{"-hetero-nodes", "ls"}, "unknown option -hetero-nodes"},
      {{"-hosfile", "f", "ls"}, "unknown option -hosfile; did you mean --hostfile?"},
      {{"-cpu-set", "3-1", "ls"}, "--cpu-set 3-1: numbers and ranges of CPUs"},
      {{"-cpu-set", "0,,1", "ls"}, "--cpu-set 0,,1"},
      {{"-xterm", "0", "ls"}, "-xterm: run xterm as the program"},
      {{"-verbos", "ls"}, "unknown option -verbos; did you mean --verbose?"},
      {{"-np", "0x4", "ls"}, "-np 0x4: a number of processes"},
      {{"-timeout", "1e10", "ls"}, "from 0 to 1000000000"},
      {{"-np", "2", ":", "-np", "2", "ls"}, "a program is missing before or after a ':'"},
      {{"-np", "2", "ls", ":"}, "a program is missing before or after a ':'"},
      {{"-np", "2", "ls", ":", "-tag-output", "ls"}, "-tag-output is for the whole job"},
      {{"-np", "2", "ls", ":", "-np", "0", "ls"}, "at least one"},
      {{"-mca", "btl"}, "--mca needs a value"},
      {{"--mca=btl", "ls"}, "--mca needs a name and a value"},
      {{"-stdin", "some", "ls"}, "--stdin some: the number of one rank, all, or none"},
      {{"--ssh-port", "0", "ls"}, "--ssh-port 0: a number from 1 to 65535"},
      {{"--ssh-port", "65536", "ls"}, "--ssh-port 65536"},
      {{"--ssh-port", "ssh", "ls"}, "--ssh-port ssh"},
      {{"--rsh", "", "ls"}, "--rsh needs a value: COMMAND"},
      {{"--agent-port", "0", "ls"}, "--agent-port 0: a number from 1 to 65535"},
      {{"--agent-port", "1", "--rsh", "x", "ls"}, "say how hosts are reached; so do --launcher and --rsh"},
      {{"--agent-addresses", "f", "--launcher", "ssh", "ls"}, "say how hosts are reached"},
      {{"--network-interface", "eth0,,ib0", "ls"}, "a name is missing"},
      {{"--lease", "0", "ls"}, "--lease: at least 0.1 seconds"},
      {{"--start-timeout", "-1", "ls"}, "--start-timeout"},
      {{"--slots-per-host", "many", "ls"}, "--slots-per-host many: a number, core, hwthread or gpu"},
      {{"--gpus-per-rank", "0", "ls"}, "--gpus-per-rank 0: a number, or auto"},
      {{"-np", "2", "ls", ":", "-np", "2", "--rsh", "x", "ls"}, "--rsh is for the whole job"},
      {{"-stdin", "-1", "ls"}, "--stdin -1"},
      {{"-timeout", "soon", "ls"}, "soon"},
      {{"-timeout", "-5", "ls"}, "--timeout"},
      {{"-bynode", "-map-by", "slot", "ls"}, "-bynode and -map-by say the same thing: give one of them"},
      {{"-np", "2", "--num-proc", "3", "ls"}, "-np and --num-proc say the same thing"},
      {{"-N", "2", "-ppn", "3", "ls"}, "-N and -ppn say the same thing"},
      {{"-N", "0", "ls"}, "-N 0: a number of processes, auto, cpu or gpu"},
      {{"-N", "gpu", "--slots-per-host", "2", "ls"}, "-N gpu and --slots-per-host"},
      {{"-npernode", "2", "-map-by", "core", "ls"}, "-N and --map-by both say where ranks run"},
      {{"-np", "2", "ls", ":", "-npernode", "2", "ls"}, "is for the whole job"},
      {{"--nnodes", "1:4", "ls"}, "--nnodes 1:4: one number; --min-np and --max-np"},
      {{"--min-np", "0", "ls"}, "--min-np 0: a number from 1"},
      {{"-np", "4", "--max-np", "3", "ls"}, "--max-np 3: fewer than the 4 ranks that the job begins with"},
      {{"--min-np", "2", "--cooldown-range", "5,1", "ls"}, "--cooldown-range 5,1: two numbers of seconds"},
      {{"--min-np", "2", "--cooldown-range", "5", "ls"}, "--cooldown-range 5: two numbers of seconds"},
      {{"--min-np", "2", "--mpi", "ls"}, "--min-np: mpirun starts no elastic jobs"},
      {{"--min-np", "2", "a", ":", "b"}, "--min-np: an elastic job has one program"},
      {{"--host-discovery-script", "s", "-H", "a", "ls"}, "--host-discovery-script and -H or --hostfile"},
      {{"--servers", "-1", "ls"}, "--servers -1: a number from 0"},
      {{"--min-np", "1", "--spares", "2147483647", "ls"}, "--spares: at most 1000000"},
      {{"--pod-selector", "app=train", "ls"}, "--pod-selector needs --cluster kubernetes"},
      {{"--cluster", "mesos", "ls"}, "--cluster mesos: only kubernetes is supported"},
      {{"--servers", "2", "--mpi", "ls"}, "--servers: mpirun starts no servers"},
      {{"--node_rank=1", "ls"}, "--node-rank 1: start hvdrun once for all hosts"},
      {{"--nnodes", "2", "--node-rank", "0", "ls"}, "--node-rank 0: start hvdrun once"},
      {{"--nnodes", "none", "ls"}, "--nnodes none: a number of hosts"},
      {{"--oversubscribe", "--nooversubscribe", "ls"}, "give one of them"},
      {{"--oversubscribe", "--map-by", "slot:NOOVERSUBSCRIBE", "ls"}, "give one of them"},
      {{"-genv", "A"}, "--genv needs a name and a value"},
      {{"-genv", "=1", "ls"}, "a name is missing"},
      {{"--tee", "3", "ls"}, "say where, with --output-filename DIR"},
      {{"--redirects", "1", "--log-dir", "logs", "ls"}, "--redirects 1: 3, both streams of all ranks, or 0"},
      {{"--output", "xml", "ls"}, "--output xml: tag, timestamp"},
      {{"--display", "cores", "ls"}, "--display cores: map, allocation, bind or topo"},
      {{"--fusion-threshold-mb", "much", "ls"}, "--fusion-threshold-mb much: a number of megabytes"},
      {{"-m", "--no-python", "module"}, "-m and --no-python"},
      {{"--completion", "fish"}, "--completion fish: bash or zsh"},
      {{"--launcher", "sge", "ls"}, "--launcher sge: local, ssh, slurm or mpi"},
      {{"--grace", "-1", "ls"}, "--grace"},
      {{"--grace", "nan", "ls"}, "--grace"},
      {{"-x", "=5", "ls"}, "a name is missing"},
  };
  for (const Row& row : rows) {
    INFO(row.in_message);
    try {
      parse_command_line(row.arguments);
      FAIL("no error");
    } catch (const InvalidArgument& error) {
      CHECK(std::string(error.what()).find(row.in_message) != std::string::npos);
    }
  }
}

}  // namespace
}  // namespace hvd::launcher
