#include "launcher/plan/job_environment.h"

#include "tests/support/catch.h"

namespace hvd::launcher {
namespace {

TEST_CASE("an environment is read and written") {
  const char* const entries[] = {"A=1", "EMPTY=", "EQUALS=a=b", "no_value", nullptr};
  const Environment environment = parse_environment(entries);
  CHECK(environment == Environment{{"A", "1"}, {"EMPTY", ""}, {"EQUALS", "a=b"}});
  CHECK(to_entries(environment) == std::vector<std::string>{"A=1", "EMPTY=", "EQUALS=a=b"});
  CHECK(parse_environment(nullptr).empty());
}

TEST_CASE("the option -x sets, passes on, and names what is not there") {
  Environment environment{{"A", "1"}, {"B", "2"}};
  const auto not_set = apply_exports(environment, {"A", "B=3", "C=4", "D=", "E=x=y", "MISSING", "A=5"});
  CHECK(not_set == std::vector<std::string>{"MISSING"});
  CHECK(environment == Environment{{"A", "5"}, {"B", "3"}, {"C", "4"}, {"D", ""}, {"E", "x=y"}});
}

TEST_CASE("a rank finds its place under both names, and nothing from outside overrides it") {
  const Environment base{{"HVD_RANK", "99"}, {"HOROVOD_SIZE", "99"}, {"HVD_JOB_KEY", "old"}, {"PATH", "/bin"}};
  const RankPlace place{.rank = 5, .size = 8, .local_rank = 1, .local_size = 4, .cross_rank = 1, .cross_size = 2};
  const HostRendezvous rendezvous{.hostname = "node7", .store = "tcp:127.0.0.1:4711", .job_key_hex = "c0ffee"};
  CHECK(environment_of_rank(base, place, rendezvous) == Environment{
                                                            {"PATH", "/bin"},
                                                            {"HVD_RANK", "5"},
                                                            {"HVD_SIZE", "8"},
                                                            {"HVD_LOCAL_RANK", "1"},
                                                            {"HVD_LOCAL_SIZE", "4"},
                                                            {"HVD_CROSS_RANK", "1"},
                                                            {"HVD_CROSS_SIZE", "2"},
                                                            {"HVD_HOSTNAME", "node7"},
                                                            {"HVD_STORE", "tcp:127.0.0.1:4711"},
                                                            {"HVD_JOB_KEY", "c0ffee"},
                                                            {"HOROVOD_RANK", "5"},
                                                            {"HOROVOD_SIZE", "8"},
                                                            {"HOROVOD_LOCAL_RANK", "1"},
                                                            {"HOROVOD_LOCAL_SIZE", "4"},
                                                            {"HOROVOD_CROSS_RANK", "1"},
                                                            {"HOROVOD_CROSS_SIZE", "2"},
                                                            {"HOROVOD_HOSTNAME", "node7"},
                                                        });
}

TEST_CASE("a rank is told its host's address if there is one to tell") {
  CHECK_FALSE(environment_of_rank(Environment{}, RankPlace{}, HostRendezvous{}).contains("HVD_ADDRESS"));
  const HostRendezvous rendezvous{.hostname = "node7", .store = "", .job_key_hex = "", .address = "10.0.0.7"};
  CHECK(environment_of_rank(Environment{}, RankPlace{}, rendezvous).at("HVD_ADDRESS") == "10.0.0.7");
}

TEST_CASE("what tells of a place, a login or a process stays where it is") {
  for (const char* name : {"PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "TERM", "LANG", "OMP_NUM_THREADS",
                           "HVD_LOG_LEVEL", "NCCL_DEBUG", "SLURM_JOB_ID", "SLURM_JOB_NODELIST", "XDG_DATA_DIRS",
                           "HOSTS", "OMPI_MCA_btl", "_CONDA_EXE", "CUDA_VISIBLE_DEVICES"}) {
    CAPTURE(name);
    CHECK(travels(name));
  }
  for (const char* name :
       {"HOSTNAME", "PWD", "OLDPWD", "SHLVL", "_", "SSH_AUTH_SOCK", "SSH_CONNECTION", "XDG_RUNTIME_DIR",
        "XDG_SESSION_ID", "DISPLAY", "BASH_FUNC_module%%", "TMPDIR", "HOME", "SLURM_NODEID", "SLURM_STEP_ID",
        "SLURMD_NODENAME", "PMIX_RANK", "HVD_HOST_ID", "HVD_ADDRESS"}) {
    CAPTURE(name);
    CHECK_FALSE(travels(name));
  }
}

TEST_CASE("ranks on another host have hvdrun's environment, and that host's own place") {
  const Environment drivers{{"PATH", "/venv/bin:/bin"},   {"HOME", "/home/me"},  {"PWD", "/work"},
                            {"ONLY_HERE", "1"},           {"SSH_TTY", "/dev/x"}, {"CUDA_VISIBLE_DEVICES", "0,1"},
                            {"ROCR_VISIBLE_DEVICES", "0"}};
  const Environment agents{{"PATH", "/bin"}, {"HOME", "/root"}, {"ONLY_THERE", "1"}, {"CUDA_VISIBLE_DEVICES", "2,3"}};
  CHECK(environment_on_host(drivers, agents) == Environment{{"PATH", "/venv/bin:/bin"},
                                                            {"HOME", "/root"},
                                                            {"ONLY_HERE", "1"},
                                                            {"ONLY_THERE", "1"},
                                                            {"CUDA_VISIBLE_DEVICES", "2,3"},
                                                            {"ROCR_VISIBLE_DEVICES", "0"}});
}

constexpr RankPlace kPlace{.rank = 5, .size = 8, .local_rank = 1, .local_size = 4, .cross_rank = 1, .cross_size = 2};

HostRendezvous rendezvous_on_second_host() {
  HostRendezvous rendezvous;
  rendezvous.group_rank = 1;
  rendezvous.master_address = "10.0.0.7";
  rendezvous.master_port = "4711";
  return rendezvous;
}

TEST_CASE("a rank has torchrun's variables, and nothing of another torchrun's") {
  Environment environment{{"PATH", "/bin"}, {"RANK", "77"}, {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
  set_torch_variables(environment, kPlace, rendezvous_on_second_host());
  CHECK(environment == Environment{{"PATH", "/bin"},
                                   {"RANK", "5"},
                                   {"WORLD_SIZE", "8"},
                                   {"LOCAL_RANK", "1"},
                                   {"LOCAL_WORLD_SIZE", "4"},
                                   {"GROUP_RANK", "1"},
                                   {"MASTER_ADDR", "10.0.0.7"},
                                   {"MASTER_PORT", "4711"},
                                   {"HVD_TORCH_VARIABLES",
                                    "RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 GROUP_RANK=1 "
                                    "MASTER_ADDR=10.0.0.7 MASTER_PORT=4711"}});
}

TEST_CASE("ranks of a host share its CPUs among their OpenMP threads, unless somebody has said how many") {
  const auto threads = [](Environment environment, int local_size, std::size_t cpus) {
    share_openmp_threads(environment, local_size, cpus);
    return environment["OMP_NUM_THREADS"];
  };
  CHECK(threads({}, 4, 2) == "1");
  CHECK(threads({}, 4, 16) == "4");
  CHECK(threads({}, 3, 8) == "2");
  CHECK(threads({}, 1, 8).empty());
  CHECK(threads({{"OMP_NUM_THREADS", "7"}}, 4, 16) == "7");
}

TEST_CASE("where rank 0 is to be met is the user's to choose") {
  Environment environment;
  set_torch_variables(environment, kPlace, rendezvous_on_second_host());
  keep_chosen_master(environment, {{"MASTER_PORT", "29500"}, {"RANK", "3"}});
  CHECK(environment["MASTER_PORT"] == "29500");
  CHECK(environment["MASTER_ADDR"] == "10.0.0.7");
  CHECK(environment["RANK"] == "5");
}

TEST_CASE("what is replaced is said, unless a job around this one has set it") {
  CHECK(replaced_torch_variables({{"PATH", "/bin"}}, {}).empty());
  const Environment users{{"WORLD_SIZE", "4"}, {"MASTER_PORT", "29500"}, {"RANK", "1"}};
  CHECK(replaced_torch_variables(users, {}) == "RANK=1 WORLD_SIZE=4 MASTER_PORT=29500");
  CHECK(replaced_torch_variables(users, {{"MASTER_PORT", "29500"}, {"RANK", "1"}}) == "RANK=1 WORLD_SIZE=4");
  Environment ours;
  set_torch_variables(ours, kPlace, rendezvous_on_second_host());
  CHECK(replaced_torch_variables(ours, {}).empty());
  ours["RANK"] = "55";
  CHECK(replaced_torch_variables(ours, {}) == "RANK=55");
}

}  // namespace
}  // namespace hvd::launcher
