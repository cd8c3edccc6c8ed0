#include "launcher/plan/hosts.h"

#include "core/base/error.h"
#include "tests/support/catch.h"

namespace hvd::launcher {

namespace {

TEST_CASE("host lists are read") {
  CHECK(parse_hosts("localhost:4") == std::vector<HostSlots>{{"localhost", 4}});
  CHECK(parse_hosts("localhost") == std::vector<HostSlots>{{"localhost", 1}});
  CHECK(parse_hosts("a:2,b,c:3") == std::vector<HostSlots>{{"a", 2}, {"b", 1}, {"c", 3}});
  CHECK(parse_hosts("a,b:2,a,a:3") == std::vector<HostSlots>{{"a", 5}, {"b", 2}});
  CHECK(parse_hosts("me@10.0.0.1:2,other@b") ==
        std::vector<HostSlots>{{"10.0.0.1", 2, {}, "me"}, {"b", 1, {}, "other"}});
  CHECK(parse_hosts("[2001:db8::1]:2,me@[::1]") == std::vector<HostSlots>{{"2001:db8::1", 2}, {"::1", 1, {}, "me"}});
  for (const char* text : {"[::1", "[]:2", "[::1]2", "[::1]:", "::1", "a:2@b"}) {
    INFO(text);
    CHECK_THROWS_AS(parse_hosts(text), InvalidArgument);
  }
  for (const char* text : {"",     ":4",    "a:",   "a:0",          "a:-1",       "a:x", "a:4x",  "a:4,",
                           ",a",   "a:1:2", "a: 4", "a:9999999999", "@a",         "me@", "me@:4", "-oProxyCommand=x",
                           "-l@a", "me@-x", "a b",  "me@a,you@a",   "a:1000000,a"}) {
    INFO(text);
    CHECK_THROWS_AS(parse_hosts(text), InvalidArgument);
  }
}

TEST_CASE("hostfiles of Open MPI, Horovod and MPICH are read") {
  struct Row {
    const char* text;
    std::vector<HostSlots> hosts;
  };
  for (const Row& row :
       {Row{"localhost slots=4\n", {{"localhost", 4}}},
        Row{"# nodes\n\n a slots=2 max_slots=4 # two\r\nb:3\n\tc", {{"a", 2, 4}, {"b", 3}, {"c"}}},
        Row{"a max-slots=8 slots=8\r\n\r\n", {{"a", 8, 8}}}, Row{"a\nb\na\nb slots=2\n", {{"a", 2}, {"b", 3}}},
        Row{"a slots = 4 max_slots =8\nb slots= 2// two\n// none\n", {{"a", 4, 8}, {"b", 2}}},
        Row{"a cpu=2 slots_max=4\nb count=3 slots-max=3", {{"a", 2, 4}, {"b", 3, 3}}},
        Row{"a username=me slots=2\nb:3 user=me", {{"a", 2, {}, "me"}, {"b", 3, {}, "me"}}},
        Row{"me@a slots=2", {{"a", 2, {}, "me"}}}, Row{"\xEF\xBB\xBF# saved on Windows\r\na", {{"a"}}},
        Row{"\xEF\xBB\xBF\x61 slots=2", {{"a", 2}}}}) {
    CAPTURE(row.text);
    CHECK(parse_hostfile(row.text) == row.hosts);
  }
}

TEST_CASE("of the hosts of a hostfile, which says how they are reached, -H chooses some") {
  const std::vector<HostSlots> file = parse_hostfile("a slots=4 max_slots=8\nb slots=2 username=me\nc");
  CHECK(choose_hosts(parse_hosts("b,a:3"), file, "f") == std::vector<HostSlots>{{"b", 1, {}, "me"}, {"a", 3, 8}});
  CHECK(choose_hosts(parse_hosts("you@b"), file, "f") == std::vector<HostSlots>{{"b", 1, {}, "you"}});
  CHECK_THROWS_WITH(choose_hosts(parse_hosts("a,d"), file, "f"), "-H d: f does not name this host");
}

TEST_CASE("what a hostfile says wrongly is told with its line") {
  struct Row {
    const char* text;
    const char* in_message;
  };
  for (const Row& row :
       {Row{"", "names no host"}, Row{"# none\n", "names no host"}, Row{"a\nb slots=x\n", "line 2 of the hostfile"},
        Row{"a slots=0", "line 1 of the hostfile"}, Row{"a slots 4", "\"slots\" is not understood"},
        Row{"a sockets=4", "\"sockets=4\" is not understood"}, Row{"a:0", "line 1"}, Row{"a max_slots=x", "line 1"},
        Row{"a slots=4 max_slots=2", "more slots than max_slots"}, Row{"a slots =", "line 1"},
        Row{"a user=-x", "\"user=-x\" is not a host's name"},
        Row{"\n-x slots=4", "line 2 of the hostfile: \"-x\" is not a host's name"}}) {
    CHECK_THROWS_WITH(parse_hostfile(row.text), Catch::Matchers::Contains(row.in_message));
  }
  CHECK_THROWS_WITH(parse_hostfile("", "/etc/mpi/hostfile"), "/etc/mpi/hostfile names no host");
}

TEST_CASE("a host is this machine by its name or by an address") {
  const LocalNames own{.hostname = "node7.cluster", .addresses = {"127.0.0.1", "10.0.0.7", "fe80::7"}};
  for (const char* name :
       {"localhost", "127.0.0.1", "127.0.1.1", "::1", "node7", "node7.cluster", "10.0.0.7", "fe80::7"}) {
    CAPTURE(name);
    CHECK(is_this_host(name, own));
  }
  for (const char* name : {"node8", "node", "node7.elsewhere", "10.0.0.8", ""}) {
    CAPTURE(name);
    CHECK_FALSE(is_this_host(name, own));
  }
  CHECK(is_this_host("login", own, {"192.168.0.1", "10.0.0.7"}));
  CHECK(is_this_host("login", own, {"127.0.1.1"}));
  CHECK_FALSE(is_this_host("login", own, {"10.0.0.8"}));
}

TEST_CASE("several names of this machine become one host") {
  const auto hosts = parse_hosts("a:1,me@localhost:2,b:3,127.0.0.1:4");
  CHECK(with_local_host_once(hosts, {false, true, false, true}) ==
        std::vector<HostSlots>{{"a", 1}, {"localhost", 6}, {"b", 3}});
  CHECK(with_local_host_once(hosts, {false, false, false, false}) == hosts);
}

// A file's text is what follows "text:" in its path.
std::string read_file(const std::string& path) {
  if (!path.starts_with("text:")) throw InvalidArgument(path + ": cannot be read");
  return path.substr(5);
}

TEST_CASE("who has allocated hosts is found out") {
  struct Row {
    Environment environment;
    const char* source;
    std::vector<HostSlots> hosts;
  };
  const std::string rankfile = "text:launch\nn1\nn1\nn2\nn2\n";
  const Row rows[] = {
      {{{"SLURM_JOB_NODELIST", "n[1-3]"}, {"SLURM_TASKS_PER_NODE", "4(x2),3"}, {"SLURM_JOB_CPUS_PER_NODE", "9(x3)"}},
       "Slurm's allocation (SLURM_JOB_NODELIST)",
       {{"n1", 4}, {"n2", 4}, {"n3", 3}}},
      {{{"SLURM_JOB_NODELIST", "n1,n2"}, {"SLURM_JOB_CPUS_PER_NODE", "16,8"}},
       "Slurm's allocation (SLURM_JOB_NODELIST)",
       {{"n1", 16}, {"n2", 8}}},
      {{{"SLURM_JOB_NODELIST", "n1"}}, "Slurm's allocation (SLURM_JOB_NODELIST)", {{"n1"}}},
      {{{"LSB_JOBID", "1"}, {"LSB_DJOB_RANKFILE", rankfile}, {"LSB_HOSTS", "x"}},
       "LSF's allocation (LSB_DJOB_RANKFILE)",
       {{"launch", 1}, {"n1", 2}, {"n2", 2}}},
      {{{"LSB_JOBID", "1"}, {"LSB_DJOB_RANKFILE", rankfile}, {"CSM_ALLOCATION_ID", "5"}},
       "LSF's allocation (LSB_DJOB_RANKFILE)",
       {{"n1", 2}, {"n2", 2}}},
      {{{"LSB_JOBID", "1"}, {"LSB_MCPU_HOSTS", "n1 4 n2 3 "}},
       "LSF's allocation (LSB_MCPU_HOSTS)",
       {{"n1", 4}, {"n2", 3}}},
      {{{"LSB_JOBID", "1"}, {"LSB_HOSTS", "n1 n1 n2"}}, "LSF's allocation (LSB_HOSTS)", {{"n1", 2}, {"n2", 1}}},
      {{{"PBS_NODEFILE", "text:n1\nn1\nn2\n"}, {"PBS_NUM_PPN", "8"}},
       "PBS's allocation (PBS_NODEFILE)",
       {{"n1", 2}, {"n2", 1}}},
      {{{"PBS_NODEFILE", "text:n1\nn2\n"}, {"PBS_NUM_PPN", "8"}},
       "PBS's allocation (PBS_NODEFILE)",
       {{"n1", 8}, {"n2", 8}}},
      {{{"PBS_NODEFILE", "text:n1\nn2\n"}}, "PBS's allocation (PBS_NODEFILE)", {{"n1", 1}, {"n2", 1}}},
      {{{"OMPI_MCA_orte_default_hostfile", "text:job-worker-0.job slots=2\njob-worker-1.job slots=2\n"}},
       "the hostfile text:job-worker-0.job slots=2\njob-worker-1.job slots=2\n (OMPI_MCA_orte_default_hostfile)",
       {{"job-worker-0.job", 2}, {"job-worker-1.job", 2}}},
      {{{"I_MPI_HYDRA_HOST_FILE", "text:w0:2"}}, "the hostfile text:w0:2 (I_MPI_HYDRA_HOST_FILE)", {{"w0", 2}}},
      {{{"HYDRA_HOST_FILE", "text:w0:2"}}, "the hostfile text:w0:2 (HYDRA_HOST_FILE)", {{"w0", 2}}},
      {{{"SLURM_JOB_NODELIST", "n1"}, {"PBS_NODEFILE", "text:n2"}},
       "Slurm's allocation (SLURM_JOB_NODELIST)",
       {{"n1"}}},
  };
  for (const Row& row : rows) {
    CAPTURE(row.source);
    const auto allocation = read_allocation(row.environment, read_file);
    REQUIRE(allocation.has_value());
    CHECK(allocation->source == row.source);
    CHECK(allocation->hosts == row.hosts);
  }
}

TEST_CASE("without an allocation there is none") {
  for (const Environment& environment :
       {Environment{}, Environment{{"SLURM_JOB_NODELIST", ""}}, Environment{{"LSB_HOSTS", "n1"}},
        Environment{{"LSB_JOBID", "1"}}, Environment{{"PBS_JOBID", "1"}},
        Environment{{"KUBERNETES_SERVICE_HOST", "x"}}}) {
    CHECK_FALSE(read_allocation(environment, read_file).has_value());
  }
}

TEST_CASE("an allocation that makes no sense is refused") {
  struct Row {
    Environment environment;
    const char* in_message;
  };
  const Row rows[] = {
      {{{"SLURM_JOB_NODELIST", "n[1-"}}, "the list of nodes \"n[1-\""},
      {{{"SLURM_JOB_NODELIST", "n[1-3]"}, {"SLURM_TASKS_PER_NODE", "4(x2)"}},
       "SLURM_TASKS_PER_NODE is of 2 nodes, but SLURM_JOB_NODELIST names 3"},
      {{{"SLURM_JOB_NODELIST", "n1"}, {"SLURM_TASKS_PER_NODE", "four"}}, "SLURM_TASKS_PER_NODE=four is not understood"},
      {{{"SLURM_JOB_NODELIST", "n1"}, {"SLURM_TASKS_PER_NODE", "4(x2000000)"}}, "is not understood"},
      {{{"SLURM_JOB_NODELIST", "n1"}, {"SLURM_TASKS_PER_NODE", "0"}}, "is not understood"},
      {{{"LSB_JOBID", "1"}, {"LSB_MCPU_HOSTS", "n1 4 n2"}}, "LSB_MCPU_HOSTS=n1 4 n2 is not understood"},
      {{{"PBS_NODEFILE", "text:"}}, "names no host"},
      {{{"PBS_NODEFILE", "text:n1"}, {"PBS_NUM_PPN", "x"}}, "PBS_NUM_PPN=x"},
      {{{"PBS_NODEFILE", "/nowhere"}}, "/nowhere: cannot be read"},
      {{{"HYDRA_HOST_FILE", "text:a slots=x"}}, "line 1 of text:a slots=x"},
  };
  for (const Row& row : rows) {
    CHECK_THROWS_WITH(read_allocation(row.environment, read_file), Catch::Matchers::Contains(row.in_message));
  }
}

}  // namespace

}  // namespace hvd::launcher
