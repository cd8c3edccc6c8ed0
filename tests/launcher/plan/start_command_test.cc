#include "launcher/plan/start_command.h"

#include "core/base/error.h"
#include "tests/support/catch.h"

namespace hvd::launcher {
namespace {

TEST_CASE("words are quoted for a shell where they need it") {
  struct Row {
    const char *word, *quoted;
  };
  for (const Row& row : {Row{"/usr/bin/hvdrun", "/usr/bin/hvdrun"}, Row{"a-b_c.d:e,f=g@h+i%", "a-b_c.d:e,f=g@h+i%"},
                         Row{"", "''"}, Row{"two words", "'two words'"}, Row{"it's", "'it'\\''s'"},
                         Row{"$HOME", "'$HOME'"}, Row{"~", "'~'"}, Row{"a\nb", "'a\nb'"}, Row{"*", "'*'"}}) {
    CHECK(shell_quoted(row.word) == row.quoted);
  }
  CHECK(shell_quoted(std::vector<std::string>{"echo", "a b", "c"}) == "echo 'a b' c");
}

TEST_CASE("agents listen at addresses that a file names") {
  const auto addresses = parse_agent_addresses("# pods\nh1 10.0.0.1:7780\n\nh2  node:1 # here\n", "f");
  CHECK(addresses == std::map<std::string, std::string>{{"h1", "10.0.0.1:7780"}, {"h2", "node:1"}});
  CHECK(start_by_listening_agent("node:1", 5s, "/my apps/hvdrun") == "exec '/my apps/hvdrun' agent --call node:1 4.5");
  CHECK(start_by_listening_agent("node:1", 30s, "hvdrun") == "exec hvdrun agent --call node:1 29");
  for (const char* line : {"h1", "h1 10.0.0.1", "h1 10.0.0.1:x", "h1 10.0.0.1:0", "h1 10.0.0.1:1 more"}) {
    CHECK_THROWS_WITH(parse_agent_addresses(std::string("a b:1\n") + line, "f"),
                      "f, line 2: '" + std::string(line) + "' is not HOST ADDRESS:PORT");
  }
}

TEST_CASE("ssh or what stands for it starts an agent") {
  struct Row {
    RemoteShell shell;
    HostSlots host;
    const char *hvdrun, *command;
  };
  const Row rows[] = {
      {{}, {"node1", 4}, "/opt/bin/hvdrun", "ssh -x -o BatchMode=yes node1 /opt/bin/hvdrun agent"},
      {{.port = 2222, .identity_file = "my key"},
       {"node1", 4, {}, "me"},
       "/opt/bin/hvdrun",
       "ssh -x -o BatchMode=yes -p 2222 -i 'my key' -l me node1 /opt/bin/hvdrun agent"},
      {{}, {"node1", 4}, "/my apps/hvdrun", "ssh -x -o BatchMode=yes node1 ''\\''/my apps/hvdrun'\\''' agent"},
      {{.command = "/tmp/rsh -v", .port = 2222},
       {"10.9.0.3", 1},
       "/opt/bin/hvdrun",
       "/tmp/rsh -v 10.9.0.3 /opt/bin/hvdrun agent"},
      {{.port = 2222, .arguments = {"-o", "ConnectionAttempts=10"}},
       {"node1", 4, {}, "me"},
       "hvdrun",
       "ssh -x -o BatchMode=yes -p 2222 -o ConnectionAttempts=10 -l me node1 hvdrun agent"},
      {{.command = "rsh", .arguments = {"-q"}}, {"node1"}, "hvdrun", "rsh -q node1 hvdrun agent"},
      {{.command = "kubexec.sh"}, {"pod-0", 1, {}, "me"}, "hvdrun", "kubexec.sh -l me pod-0 hvdrun agent"},
  };
  for (const Row& row : rows) CHECK(start_by_remote_shell(row.shell, row.host, row.hvdrun) == row.command);
}

TEST_CASE("srun starts the agents of all hosts") {
  const auto words = start_by_slurm({{"n1", 4}, {"n2", 3}}, "/opt/bin/hvdrun");
  CHECK(shell_quoted(words) ==
        "srun --nodes=2 --ntasks=2 --ntasks-per-node=1 --nodelist=n1,n2 --overlap --cpu-bind=none --mpi=none "
        "--kill-on-bad-exit=0 --no-kill /opt/bin/hvdrun agent");
}

TEST_CASE("Open MPI's parameter names the remote shell, unless --rsh does") {
  const Environment environment{{"OMPI_MCA_plm_rsh_agent", "/etc/mpi/kubexec.sh"}};
  CHECK(with_parameters_of_open_mpi({}, {}, {}).command.empty());
  CHECK(with_parameters_of_open_mpi({}, {}, environment).command == "/etc/mpi/kubexec.sh");
  CHECK(with_parameters_of_open_mpi({}, {{"btl", "tcp"}, {"plm_rsh_agent", "rsh -x"}}, environment).command ==
        "rsh -x");
  CHECK(with_parameters_of_open_mpi({}, {{"plm_rsh_agent", "ssh : rsh"}}, {}).command.empty());
  CHECK(with_parameters_of_open_mpi({.command = "mine"}, {{"plm_rsh_agent", "rsh"}}, environment).command == "mine");
}

TEST_CASE("Open MPI's parameters add arguments to the remote shell, unless --rsh names another") {
  using Words = std::vector<std::string>;
  const Environment environment{{"OMPI_MCA_plm_rsh_args", "-o ConnectionAttempts=10"}};
  CHECK(with_parameters_of_open_mpi({}, {}, {}).arguments.empty());
  CHECK(with_parameters_of_open_mpi({}, {}, environment).arguments == Words{"-o", "ConnectionAttempts=10"});
  const RemoteShell shell = with_parameters_of_open_mpi({.port = 1}, {{"plm_rsh_args", " -p  2233 "}}, environment);
  CHECK(shell == RemoteShell{.port = 1, .arguments = {"-p", "2233"}});
  CHECK(with_parameters_of_open_mpi({}, {{"plm_ssh_args", "-q"}}, {}).arguments == Words{"-q"});
  CHECK(with_parameters_of_open_mpi({.command = "mine"}, {{"plm_rsh_args", "-q"}}, environment).arguments.empty());
}

TEST_CASE("by what agents are started follows from the hosts, unless it is said") {
  struct Row {
    StartedBy asked;
    const char* command;
    bool only_this_host, slurms_hosts;
    StartedBy chosen;
  };
  using enum StartedBy;
  const Row rows[] = {
      {automatic, "", true, false, local}, {automatic, "", true, true, local},   {automatic, "", false, false, ssh},
      {automatic, "", false, true, slurm}, {automatic, "rsh", false, true, ssh}, {local, "", true, false, local},
      {ssh, "", false, true, ssh},         {slurm, "", false, false, slurm},     {mpirun, "", false, true, mpirun},
      {ssh, "", true, false, ssh},
  };
  for (const Row& row : rows) {
    CHECK(choose_start(row.asked, {.command = row.command}, row.only_this_host, row.slurms_hosts) == row.chosen);
  }
  CHECK_THROWS_WITH(choose_start(local, {}, false, false), Catch::Matchers::Contains("--launcher local"));
  CHECK_THROWS_WITH(choose_start(slurm, {.command = "rsh"}, false, true), Catch::Matchers::Contains("--rsh"));
}

}  // namespace
}  // namespace hvd::launcher
