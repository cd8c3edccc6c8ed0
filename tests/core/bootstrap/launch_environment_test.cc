#include "core/bootstrap/launch_environment.h"

#include <sys/wait.h>
#include <unistd.h>

#include "core/base/error.h"
#include "core/base/text.h"
#include "tests/support/catch.h"

namespace hvd::testing {

namespace {

const Environment kOpenMpi = {
    {"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "8"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}};
const Environment kMpich = {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALNRANKS", "2"}};
const Environment kTorchrun = {{"RANK", "1"},
                               {"WORLD_SIZE", "4"},
                               {"LOCAL_WORLD_SIZE", "2"},
                               {"MASTER_ADDR", "10.0.0.1"},
                               {"MASTER_PORT", "29500"},
                               {"TORCHELASTIC_RUN_ID", "none"}};
const Environment kSlurm = {{"SLURM_PROCID", "2"},  {"SLURM_STEP_NUM_TASKS", "4"},
                            {"SLURM_STEP_ID", "0"}, {"SLURM_JOB_ID", "17"},
                            {"SLURM_NTASKS", "4"},  {"SLURM_STEP_NODELIST", "gpu[03-05]"}};
const Environment kTfConfig = {
    {"TF_CONFIG", R"({"cluster": {"worker": ["h:7", "h:8", "h:9"]}, "task": {"type": "worker", "index": 1}})"}};

const Environment kRendezvous = {{"HVD_RANK", "1"}, {"HVD_SIZE", "3"}, {"HVD_RENDEZVOUS", "train-0.train:7777"}};

Environment with(Environment environment, const Environment& more) {
  environment.insert(more.begin(), more.end());
  return environment;
}

Environment without(Environment environment, const std::string& name) {
  environment.erase(name);
  return environment;
}

}  // namespace

TEST_CASE("launch environment: each launcher is known by its variables, and the innermost counts") {
  struct Row {
    const char* what;
    Environment environment;
    Launcher launcher;
    int rank, size, local_size;
  };
  const auto row = GENERATE_COPY(values<Row>({
      {"nothing", {}, Launcher::none, 0, 1, 0},
      {"Open MPI", kOpenMpi, Launcher::open_mpi, 3, 8, 4},
      {"MPICH", kMpich, Launcher::mpich, 1, 2, 2},
      {"torchrun", kTorchrun, Launcher::torchrun, 1, 4, 2},
      {"what torch.distributed wants, by hand", without(kTorchrun, "TORCHELASTIC_RUN_ID"), Launcher::torchrun, 1, 4, 2},
      {"srun", kSlurm, Launcher::slurm, 2, 4, 0},
      {"a place by hand", kRendezvous, Launcher::rendezvous, 1, 3, 0},
      {"the same in a job of hvdrun", with(kRendezvous, {{"HVD_STORE", "tcp:a:1"}}), Launcher::hvdrun, 1, 3, 0},
      {"the same in the environment of a child", without(kRendezvous, "HVD_RANK"), Launcher::hvdrun, 0, 3, 0},
      {"mpirun in an allocation", with(kOpenMpi, kSlurm), Launcher::open_mpi, 3, 8, 4},
      {"MPICH's mpiexec in an allocation", with(kMpich, kSlurm), Launcher::mpich, 1, 2, 2},
      {"srun with PMI2", with(kSlurm, {{"PMI_RANK", "2"}, {"PMI_SIZE", "4"}, {"PMI_FD", "9"}}), Launcher::slurm, 2, 4,
       0},
      {"torchrun in an allocation", with(kTorchrun, kSlurm), Launcher::torchrun, 1, 4, 2},
      {"mpirun that starts torchrun on each host", with(kTorchrun, kOpenMpi), Launcher::torchrun, 1, 4, 2},
      {"variables by hand under mpirun", with(kOpenMpi, without(kTorchrun, "TORCHELASTIC_RUN_ID")), Launcher::open_mpi,
       3, 8, 4},
      {"torchrun under mpirun for one", with({{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}}, kTorchrun),
       Launcher::torchrun, 1, 4, 2},
      {"mpiexec where variables by hand are for one",
       with({{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}}, kMpich), Launcher::mpich,
       1, 2, 2},
      {"variables that hvd has set under mpiexec",
       with({{"HVD_TORCH_VARIABLES", "RANK=1 WORLD_SIZE=4 LOCAL_WORLD_SIZE=2 MASTER_ADDR=10.0.0.1 MASTER_PORT=29500"}},
            with(kMpich, without(kTorchrun, "TORCHELASTIC_RUN_ID"))),
       Launcher::mpich, 1, 2, 2},
      {"variables that hvd has set, alone",
       with({{"HVD_TORCH_VARIABLES", "RANK=1 WORLD_SIZE=4"}}, without(kTorchrun, "TORCHELASTIC_RUN_ID")),
       Launcher::none, 0, 1, 0},
      {"variables by hand, where hvd has set others",
       with({{"HVD_TORCH_VARIABLES", "RANK=0 WORLD_SIZE=2 x"}}, without(kTorchrun, "TORCHELASTIC_RUN_ID")),
       Launcher::torchrun, 1, 4, 2},
      {"torchrun started by a rank of the same number",
       with({{"HVD_TORCH_VARIABLES", "RANK=1 WORLD_SIZE=4 MASTER_PORT=1"}}, kTorchrun), Launcher::torchrun, 1, 4, 2},
      {"torchrun for one", with({{"WORLD_SIZE", "1"}, {"RANK", "0"}}, kTorchrun), Launcher::none, 0, 1, 0},
      {"TF_CONFIG", kTfConfig, Launcher::tf_config, 1, 3, 0},
      {"TF_CONFIG under srun", with(kTfConfig, kSlurm), Launcher::tf_config, 1, 3, 0},
      {"TF_CONFIG of an evaluator, under srun",
       with({{"TF_CONFIG", R"({"cluster": {"worker": ["h:7", "h:8"]}, "task": {"type": "evaluator"}})"}}, kSlurm),
       Launcher::tf_config, 0, 1, 0},
      {"TF_CONFIG for one, under srun",
       with({{"TF_CONFIG", R"({"cluster": {"chief": ["h:7"]}, "task": {"type": "chief", "index": 0}})"}}, kSlurm),
       Launcher::slurm, 2, 4, 0},
      {"an empty TF_CONFIG", {{"TF_CONFIG", ""}}, Launcher::none, 0, 1, 0},
      {"mpirun where TF_CONFIG is set", with(kOpenMpi, kTfConfig), Launcher::open_mpi, 3, 8, 4},
      {"MPICH's mpiexec where TF_CONFIG is set", with(kMpich, kTfConfig), Launcher::mpich, 1, 2, 2},
      {"torchrun where TF_CONFIG is set", with(kTorchrun, kTfConfig), Launcher::torchrun, 1, 4, 2},
      {"hvdrun where TF_CONFIG makes no sense", {{"HVD_SIZE", "1"}, {"TF_CONFIG", "{"}}, Launcher::hvdrun, 0, 1, 0},
      {"hvdrun in an allocation", with({{"HVD_SIZE", "2"}, {"HVD_RANK", "1"}}, kSlurm), Launcher::hvdrun, 1, 2, 0},
      {"hvdrun in a job of mpirun's", with({{"HOROVOD_SIZE", "1"}}, kOpenMpi), Launcher::hvdrun, 0, 1, 0},
  }));
  INFO(row.what);
  const Launch launch = read_launch(row.environment);
  CHECK(launch.launcher == row.launcher);
  CHECK(launch.rank == row.rank);
  CHECK(launch.size == row.size);
  CHECK(launch.local_size == row.local_size);
}

TEST_CASE("launch environment: servers have a number of their own and no rank") {
  struct Row {
    const char* what;
    Environment environment;
    int rank, size, servers, server;
  };
  const auto row = GENERATE(values<Row>({
      {"a rank", {{"HVD_RANK", "1"}, {"HVD_SIZE", "4"}, {"HVD_SERVERS", "2"}}, 1, 4, 2, -1},
      {"a server", {{"HVD_SIZE", "4"}, {"HVD_SERVERS", "2"}, {"HVD_SERVER", "1"}}, -1, 4, 2, 1},
      {"a server of an elastic job", {{"HVD_SERVERS", "2"}, {"HVD_SERVER", "1"}}, -1, 1, 2, 1},
      {"a process of an elastic job", {{"HVD_PROCESS", "3"}, {"HVD_SERVERS", "2"}}, 0, 1, 2, -1},
      {"a rank's child that works alone", {{"HVD_SIZE", "1"}, {"HVD_SERVERS", "2"}}, 0, 1, 0, -1},
  }));
  INFO(row.what);
  const Launch launch = read_launch(row.environment);
  CHECK(launch.launcher == Launcher::hvdrun);
  CHECK(launch.rank == row.rank);
  CHECK(launch.size == row.size);
  CHECK(launch.servers == row.servers);
  CHECK(launch.server == row.server);
}

TEST_CASE("launch environment: a step of Slurm has a node and a port, and may have PMI") {
  const Launch launch = read_launch(kSlurm);
  CHECK(launch.store.host == "gpu03");
  CHECK_FALSE(launch.mpi);
  CHECK(launch.store.port >= 20'000);
  CHECK(launch.store.port < 32'000);
  CHECK(read_launch(with({{"SLURM_PROCID", "0"}}, kSlurm)).store == launch.store);
  CHECK(read_launch(with({{"SLURM_STEP_ID", "1"}}, kSlurm)).store.port != launch.store.port);
  CHECK(read_launch(with({{"PMIX_RANK", "2"}}, kSlurm)).mpi == MpiKind::open_mpi);
  CHECK(read_launch(with({{"PMI_FD", "9"}}, kSlurm)).mpi == MpiKind::mpich);
}

TEST_CASE(
    "launch environment: the first job's store is where the launcher says, later ones are elsewhere on that host") {
  const std::uint16_t port = GENERATE(1, 2222, 20'000, 31'999, 65'535);
  const Launch launch{.store = {.host = "a", .port = port}};
  CHECK(store_address(launch, 1) == launch.store);
  for (int epoch = 2; epoch < 20; ++epoch) {
    const Address address = store_address(launch, epoch);
    CHECK(address.host == "a");
    CHECK(address.port >= 20'000);
    CHECK(address.port < 32'000);
    CHECK(address != store_address(launch, epoch - 1));
  }
}

TEST_CASE("launch environment: the store is on the first of a list of nodes") {
  const auto [list, first] = GENERATE(table<std::string, std::string>({{"one", "one"},
                                                                       {"a,b", "a"},
                                                                       {"gpu[03-05,9],login", "gpu03"},
                                                                       {"rack[1,2]-n", "rack1-n"},
                                                                       {"rack[0-1]node[1-2]", "rack0node1"}}));
  CHECK(read_launch(with({{"SLURM_STEP_NODELIST", list}}, kSlurm)).store.host == first);
}

TEST_CASE("launch environment: what makes no sense is refused, and nobody takes himself for the only one") {
  for (const char* list : {"", "gpu[", "gpu[]"}) {
    CHECK_THROWS_AS(read_launch(with({{"SLURM_STEP_NODELIST", list}}, kSlurm)), InvalidArgument);
  }
  CHECK_THROWS_WITH(read_launch(with({{"OMPI_COMM_WORLD_RANK", "8"}}, kOpenMpi)),
                    Catch::Matchers::Contains("OMPI_COMM_WORLD_RANK=8 is not below"));
  CHECK_THROWS_WITH(read_launch(with({{"PMI_RANK", "x"}}, kMpich)), Catch::Matchers::Contains("PMI_RANK='x'"));
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", "WORLD_SIZE"}) {
    CAPTURE(name);
    CHECK_THROWS_WITH(read_launch({{name, "4"}}), Catch::Matchers::Contains(std::string(name) + "=4"));
    CHECK(read_launch({{name, "1"}}).size == 1);
    CHECK(read_launch({{name, "4"}, {"HVD_SIZE", "1"}}).launcher == Launcher::hvdrun);
  }
}

TEST_CASE("launch environment: a rank of hvdrun's whose WORLD_SIZE is another is refused, with both numbers") {
  const auto [size, world_size] =
      GENERATE(values<std::pair<const char*, const char*>>({{"4", "2"}, {"4", "1"}, {"1", "4"}}));
  for (const std::string prefix : {"HVD", "HOROVOD"}) {
    const Environment of_hvdrun{{prefix + "_RANK", "0"}, {prefix + "_SIZE", size}};
    CHECK_THROWS_WITH(read_launch(with(of_hvdrun, {{"WORLD_SIZE", world_size}})),
                      Catch::Matchers::Contains(prefix + "_SIZE=" + size) &&
                          Catch::Matchers::Contains(std::string("WORLD_SIZE=") + world_size));
    CHECK(read_launch(with(of_hvdrun, {{"WORLD_SIZE", size}})).launcher == Launcher::hvdrun);
  }
}

TEST_CASE("a process with the variables of a rank is that rank, or its child") {
  struct Row {
    const char* what;
    Launcher launcher;
    Environment one, other;
    bool is_same;
  };
  const Row rows[] = {
      {"another rank", Launcher::hvdrun, {{"HVD_RANK", "0"}}, {{"HVD_RANK", "1"}}, false},
      {"another server", Launcher::hvdrun, {{"HVD_SERVER", "0"}}, {{"HVD_SERVER", "1"}}, false},
      {"another job of hvdrun's",
       Launcher::hvdrun,
       {{"HVD_RANK", "0"}, {"HVD_STORE", "h:1"}},
       {{"HVD_RANK", "0"}, {"HVD_STORE", "h:2"}},
       false},
      {"the same of hvdrun's",
       Launcher::hvdrun,
       {{"HVD_RANK", "0"}, {"HVD_STORE", "h:1"}, {"A", "1"}},
       {{"HVD_RANK", "0"}, {"HVD_STORE", "h:1"}, {"A", "2"}},
       true},
      {"the same process of an elastic job, in another epoch",
       Launcher::hvdrun,
       {{"HVD_PROCESS", "3"}, {"HVD_STORE", "h:1"}, {"HOROVOD_RANK", "1"}},
       {{"HVD_PROCESS", "3"}, {"HVD_STORE", "h:1"}},
       true},
      {"another process of it",
       Launcher::hvdrun,
       {{"HVD_PROCESS", "3"}, {"HVD_STORE", "h:1"}, {"HOROVOD_RANK", "1"}},
       {{"HVD_PROCESS", "2"}, {"HVD_STORE", "h:1"}, {"HOROVOD_RANK", "1"}},
       false},
      {"a launcher without variables", Launcher::open_mpi, {}, {}, false},
      {"the launcher itself", Launcher::open_mpi, {{"OMPI_COMM_WORLD_RANK", "0"}}, {}, false},
      {"mpirun that a rank has started",
       Launcher::open_mpi,
       {{"OMPI_COMM_WORLD_RANK", "0"}, {"PMIX_NAMESPACE", "2"}},
       {{"OMPI_COMM_WORLD_RANK", "0"}, {"PMIX_NAMESPACE", "1"}},
       false},
      {"torch's variables, which a rank of mpirun's has set for itself",
       Launcher::open_mpi,
       {{"OMPI_COMM_WORLD_RANK", "0"}, {"RANK", "0"}, {"MASTER_PORT", "5"}},
       {{"OMPI_COMM_WORLD_RANK", "0"}},
       true},
      {"a step of srun's inside another",
       Launcher::slurm,
       {{"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", "1"}},
       {{"SLURM_PROCID", "0"}, {"SLURM_STEP_ID", "0"}},
       false},
      {"a restart by torchrun",
       Launcher::torchrun,
       {{"RANK", "0"}, {"TORCHELASTIC_RESTART_COUNT", "1"}},
       {{"RANK", "0"}, {"TORCHELASTIC_RESTART_COUNT", "0"}},
       false},
      {"nobody's", Launcher::none, {{"RANK", "0"}}, {{"RANK", "0"}}, false},
  };
  for (const Row& row : rows) {
    INFO(row.what);
    CHECK(is_same_rank(row.launcher, row.one, row.other) == row.is_same);
  }
}

TEST_CASE("a parent is one by whom this process was started") {
  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child == 0) _exit(is_started_by(parent) && !is_started_by(getpid()) ? 0 : 1);
  int status = -1;
  REQUIRE(waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_CASE("launch environment: where ranks are to find each other") {
  const Launch launch = read_launch(kRendezvous);
  CHECK(launch.store == Address{.host = "train-0.train", .port = 7777});
  CHECK(read_launch(with({{"HVD_RENDEZVOUS", "h:1"}, {"HVD_SIZE", "1"}}, {})).launcher == Launcher::hvdrun);
  Environment server = without(kRendezvous, "HVD_RANK");
  server.insert({{"HVD_SERVER", "0"}, {"HVD_SERVERS", "1"}});
  CHECK(read_launch(server).store.port == 7777);
  CHECK_THROWS_AS(read_launch(with({{"HVD_RENDEZVOUS", "h"}}, kRendezvous)), InvalidArgument);
}

TEST_CASE("Slurm's lists of nodes are expanded") {
  struct Row {
    const char *list, *names;
  };
  for (const Row& row :
       {Row{"node7", "node7"}, Row{"a,b", "a b"}, Row{"n[1-3]", "n1 n2 n3"},
        Row{"n[08-10,12],login", "n08 n09 n10 n12 login"}, Row{"n[7]", "n7"}, Row{"n[1-2]-ib", "n1-ib n2-ib"},
        Row{"r[0-1]n[1-2]", "r0n1 r0n2 r1n1 r1n2"}, Row{"n[098-101]", "n098 n099 n100 n101"},
        Row{"a[1,3],b[2]", "a1 a3 b2"}, Row{"n[20260101-20260102]", "n20260101 n20260102"}}) {
    CAPTURE(row.list);
    CHECK(expand_nodelist(row.list) == split_list(row.names, ' '));
  }
  for (const char* list : {"", "a,", ",a", "n[", "n[1", "n]", "n1]", "n[]", "n[a]", "n[2-1]", "n[1-]", "n[-1]",
                           "n[1-2-3]", "n[0-999999]x[0-9]", "n[0-1000000]", "n[1,[2]]"}) {
    CAPTURE(list);
    CHECK_THROWS_AS(expand_nodelist(list), InvalidArgument);
  }
}

}  // namespace hvd::testing
