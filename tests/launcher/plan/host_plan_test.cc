#include "launcher/plan/host_plan.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/support/catch.h"
#include "tests/support/temporary_folder.h"

namespace hvd::launcher {

namespace {

class Folder : public testing::TemporaryFolder {
 public:
  std::string add(const std::string& name, mode_t mode) const {
    const std::filesystem::path program = *this / name;
    std::filesystem::create_directories(program.parent_path());
    std::ofstream(program) << "#!/bin/sh\n";
    chmod(program.c_str(), mode);
    return program;
  }
};

TEST_CASE("programs are found as shells find them") {
  const Folder folder;
  const std::string plain = folder.add("a/tool", 0644);
  const std::string good = folder.add("b/tool", 0755);
  folder.add("c/tool", 0755);
  const std::string path = folder / "missing" + ":" + (folder / "a") + ":" + (folder / "b") + ":" + (folder / "c");
  CHECK(find_program("", "tool", path) == good);
  CHECK(find_program("", good, "") == good);

  struct Row {
    std::string name;
    int exit_code;
    std::string in_message;
  };
  const Row rows[] = {
      {"other", 127, "not found in PATH: other"},  {folder / "b/other", 127, "not found: "},
      {plain, 126, "is not executable; chmod +x"}, {folder.add("train.py", 0644), 126, "start it as: python "},
      {folder / "b", 126, "is a directory"},
  };
  for (const Row& row : rows) {
    INFO(row.name);
    try {
      find_program("", row.name, path);
      FAIL("no error");
    } catch (const ProgramUnusable& error) {
      CHECK(error.exit_code() == row.exit_code);
      CHECK(std::string(error.what()).find(row.in_message) != std::string::npos);
    }
  }
  try {
    find_program("", "tool", folder / "a");
    FAIL("no error");
  } catch (const ProgramUnusable& error) {
    CHECK(error.exit_code() == 126);
  }
}

TEST_CASE("without PATH the system's folders are looked in") {
  CHECK(search_path_of({{"PATH", "/a:/b"}}) == "/a:/b");
  CHECK(search_path_of({{"PATH", ""}}).empty());
  CHECK(find_program("", "sh", search_path_of({{"OTHER", "1"}})).ends_with("/sh"));
}

RankPlan planned_rank(int number, int size, int local_rank, int local_size) {
  return {.numbers = {.rank = number, .size = size, .local_rank = local_rank, .local_size = local_size}};
}

// The text without the ranks' environments.
std::string without_environments(const std::string& text) {
  std::istringstream lines(text);
  std::string result;
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("    ") && !line.starts_with("  environment of rank ")) result += line + "\n";
  }
  return result;
}

TEST_CASE("a plan shows hosts and ranks") {
  RankPlan first = planned_rank(0, 3, 0, 2), second = planned_rank(1, 3, 1, 2), third = planned_rank(2, 3, 0, 1);
  first.cpus = {0, 1, 2, 3};
  second.cpus = {4, 5};
  first.numbers.cross_size = third.numbers.cross_size = 2;
  third.numbers.cross_rank = 1;
  third.visible_gpus = "0,1";
  const std::vector<ProgramPlan> programs{{.arguments = {"python", "train.py", "two words"}}};
  const std::vector<PlannedHost> hosts{
      {.plan = {.name = "node1", .programs = programs, .ranks = {first, second}}, .slots = 2},
      {.plan = {.name = "node2", .programs = programs, .ranks = {third}}, .start_command = "ssh node2 hvdrun agent"}};
  CHECK(without_environments(plan_text("-H", hosts)) == R"(3 ranks on 2 hosts, from -H
program: python train.py 'two words'

node1: 2 ranks, 2 slots
  started by: hvdrun itself, on this machine
  rank  local  cross  CPUs  GPUs
  0/3   0/2    0/2    0-3   as they are
  1/3   1/2    0/1    4-5   as they are

node2: 1 rank, 1 slot
  started by: ssh node2 hvdrun agent
  rank  local  cross  CPUs  GPUs
  2/3   0/1    1/2    all   0,1
)");
}

TEST_CASE("a plan shows the environment of each rank, and no key") {
  HostPlan plan{.programs = {{.arguments = {"train"}, .exports = {{"MASTER_PORT", "1234"}}}},
                .ranks = {planned_rank(0, 1, 0, 1)}};
  plan.rendezvous.hostname = "my node";
  plan.rendezvous.job_key_hex = "c0ffee";
  const std::string text = plan_text("", {{.plan = plan}});
  for (const char* line : {"  environment of rank 0:\n", "    HVD_HOSTNAME='my node'\n", "    HVD_JOB_KEY=(secret)\n",
                           "    HVD_RANK=0\n", "    WORLD_SIZE=1\n", "    MASTER_PORT=1234\n"}) {
    CHECK(text.find(line) != std::string::npos);
  }
  CHECK(text.find("c0ffee") == std::string::npos);
}

TEST_CASE("a plan shows servers, and their environment") {
  RankPlan server = planned_rank(2, 2, 0, 1);
  server.server = 0;
  server.cpus = {4, 5};
  const HostPlan plan{.name = "h",
                      .programs = {{.arguments = {"train"}}},
                      .ranks = {planned_rank(0, 2, 0, 2)},
                      .servers = {server},
                      .servers_of_job = 1};
  const std::string text = plan_text("", {{.plan = plan}});
  CHECK(text.starts_with("1 rank and 1 server on 1 host\n"));
  for (const char* line : {"  server 0, on the CPUs 4-5\n", "  environment of server 0:\n", "    HVD_SERVER=0\n"}) {
    CHECK(text.find(line) != std::string::npos);
  }
}

TEST_CASE("a plan of several programs tells which rank has which") {
  RankPlan second = planned_rank(1, 2, 1, 2);
  second.program = 1;
  const HostPlan plan{.name = "localhost",
                      .programs = {{.arguments = {"server"}}, {.arguments = {"client", "-v"}}},
                      .ranks = {planned_rank(0, 2, 0, 2), second}};
  CHECK(without_environments(plan_text("", {{.plan = plan, .slots = 2}})) == R"(2 ranks on 1 host
program 0: server
program 1: client -v

localhost: 2 ranks, 2 slots
  started by: hvdrun itself, on this machine
  rank  local  cross  CPUs  GPUs         program
  0/2   0/2    0/1    all   as they are  0
  1/2   1/2    0/1    all   as they are  1
)");
}

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

constexpr RankNumbers kNumbers{
    .rank = 5, .size = 8, .local_rank = 1, .local_size = 4, .cross_rank = 1, .cross_size = 2};

HostRendezvous rendezvous_on_second_host() {
  HostRendezvous rendezvous{.hostname = "node7", .store = "tcp:127.0.0.1:4711", .job_key_hex = "c0ffee"};
  rendezvous.group_rank = 1;
  rendezvous.master_address = "10.0.0.7";
  rendezvous.master_port = "4711";
  return rendezvous;
}

Environment environment_in(const RankNumbers& numbers, const HostRendezvous& rendezvous, Environment base = {},
                           Environment exports = {}) {
  const HostPlan plan{.programs = {{.exports = std::move(exports)}}, .rendezvous = rendezvous};
  return environment_of_rank(plan, {.numbers = numbers}, std::move(base));
}

TEST_CASE("a server knows its number and those of ranks and servers, and has no rank, whatever was set") {
  const Environment base{{"HVD_RANK", "1"},    {"HOROVOD_LOCAL_RANK", "1"}, {"RANK", "1"},
                         {"MASTER_ADDR", "a"}, {"HVD_SERVER_START", "9"},   {"PATH", "/bin"}};
  HostPlan plan{.programs = {{}}, .servers_of_job = 2, .rendezvous = rendezvous_on_second_host()};
  Environment wanted{{"PATH", "/bin"},
                     {"HVD_SIZE", "8"},
                     {"HOROVOD_SIZE", "8"},
                     {"HVD_HOSTNAME", "node7"},
                     {"HOROVOD_HOSTNAME", "node7"},
                     {"HVD_STORE", "tcp:127.0.0.1:4711"},
                     {"HVD_JOB_KEY", "c0ffee"},
                     {"HVD_SERVERS", "2"},
                     {"HVD_SERVER", "1"},
                     {"HVD_SERVER_START", "3"}};
  CHECK(environment_of_rank(plan, {.numbers = kNumbers, .server = 1, .server_start = 3}, base) == wanted);
  const Environment of_rank = environment_of_rank(plan, {.numbers = kNumbers}, wanted);
  CHECK(of_rank.at("HVD_SERVERS") == "2");
  CHECK_FALSE(of_rank.contains("HVD_SERVER"));
  CHECK_FALSE(of_rank.contains("HVD_SERVER_START"));
  plan.is_elastic = true;  // then the number of ranks changes
  Environment in_elastic_job = wanted;
  in_elastic_job.erase("HVD_SIZE");
  in_elastic_job.erase("HOROVOD_SIZE");
  for (const char* name : {"HVD_ELASTIC", "HOROVOD_ELASTIC"}) in_elastic_job[name] = "1";
  CHECK(environment_of_rank(plan, {.numbers = kNumbers, .server = 1, .server_start = 3}, base) == in_elastic_job);
  const Environment of_process = environment_of_rank(plan, {.numbers = kNumbers}, base);
  CHECK(of_process.contains("HVD_PROCESS"));
  CHECK(of_process.at("HVD_SERVERS") == "2");
  plan.is_elastic = false;
  plan.servers_of_job = 0;
  CHECK_FALSE(environment_of_rank(plan, {.numbers = kNumbers}, wanted).contains("HVD_SERVERS"));
  for (const char* name : {"HVD_ELASTIC", "HOROVOD_ELASTIC"}) {  // of the job that has started this hvdrun
    CHECK_FALSE(environment_of_rank(plan, {.numbers = kNumbers}, in_elastic_job).contains(name));
  }
}

TEST_CASE("a rank finds its place under all names, and nothing from outside or of another torchrun overrides it") {
  const Environment base{{"HVD_RANK", "99"}, {"HOROVOD_SIZE", "99"}, {"HVD_JOB_KEY", "old"},
                         {"PATH", "/bin"},   {"RANK", "77"},         {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
  CHECK(environment_in(kNumbers, rendezvous_on_second_host(), base) ==
        Environment{
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
            {"RANK", "5"},
            {"WORLD_SIZE", "8"},
            {"LOCAL_RANK", "1"},
            {"LOCAL_WORLD_SIZE", "4"},
            {"GROUP_RANK", "1"},
            {"MASTER_ADDR", "10.0.0.7"},
            {"MASTER_PORT", "4711"},
            {"HVD_TORCH_VARIABLES",
             "RANK=5 WORLD_SIZE=8 LOCAL_RANK=1 LOCAL_WORLD_SIZE=4 "
             "GROUP_RANK=1 MASTER_ADDR=10.0.0.7 MASTER_PORT=4711"},
        });
}

TEST_CASE("a rank is told its host's address if there is one to tell") {
  CHECK_FALSE(environment_in(RankNumbers{}, HostRendezvous{}).contains("HVD_ADDRESS"));
  const HostRendezvous rendezvous{.hostname = "node7", .store = "", .job_key_hex = "", .address = "10.0.0.7"};
  CHECK(environment_in(RankNumbers{}, rendezvous).at("HVD_ADDRESS") == "10.0.0.7");
}

TEST_CASE("what tells of a place, a login or a process stays where it is") {
  for (const char* name : {"PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "TERM", "LANG", "OMP_NUM_THREADS",
                           "HVD_LOG_LEVEL", "NCCL_DEBUG", "SLURM_JOB_ID", "SLURM_JOB_NODELIST", "XDG_DATA_DIRS",
                           "HOSTS", "OMPI_MCA_btl", "_CONDA_EXE", "CUDA_VISIBLE_DEVICES"}) {
    CAPTURE(name);
    CHECK(environment_on_host({{name, "1"}}, {}).contains(name));
  }
  for (const char* name :
       {"HOSTNAME", "PWD", "OLDPWD", "SHLVL", "_", "SSH_AUTH_SOCK", "SSH_CONNECTION", "XDG_RUNTIME_DIR",
        "XDG_SESSION_ID", "DISPLAY", "BASH_FUNC_module%%", "TMPDIR", "HOME", "SLURM_NODEID", "SLURM_STEP_ID",
        "SLURMD_NODENAME", "PMIX_RANK", "HVD_HOST_ID", "HVD_ADDRESS"}) {
    CAPTURE(name);
    CHECK_FALSE(environment_on_host({{name, "1"}}, {}).contains(name));
  }
}

TEST_CASE("ranks on another host have hvdrun's environment, and that host's own place") {
  const Environment of_hvdrun{{"PATH", "/venv/bin:/bin"},   {"HOME", "/home/me"},  {"PWD", "/work"},
                              {"ONLY_HERE", "1"},           {"SSH_TTY", "/dev/x"}, {"CUDA_VISIBLE_DEVICES", "0,1"},
                              {"ROCR_VISIBLE_DEVICES", "0"}};
  const Environment of_agent{{"PATH", "/bin"}, {"HOME", "/root"}, {"ONLY_THERE", "1"}, {"CUDA_VISIBLE_DEVICES", "2,3"}};
  CHECK(environment_on_host(of_hvdrun, of_agent) == Environment{{"PATH", "/venv/bin:/bin"},
                                                                {"HOME", "/root"},
                                                                {"ONLY_HERE", "1"},
                                                                {"ONLY_THERE", "1"},
                                                                {"CUDA_VISIBLE_DEVICES", "2,3"},
                                                                {"ROCR_VISIBLE_DEVICES", "0"}});
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
  Environment environment =
      environment_in(kNumbers, rendezvous_on_second_host(), {}, {{"MASTER_PORT", "29500"}, {"RANK", "3"}});
  CHECK(environment["MASTER_PORT"] == "29500");
  CHECK(environment["MASTER_ADDR"] == "10.0.0.7");
  CHECK(environment["RANK"] == "5");
}

TEST_CASE("what is replaced is said, unless a job around this one has set it") {
  CHECK(replaced_torch_variables({{"PATH", "/bin"}}, {}).empty());
  const Environment users{{"WORLD_SIZE", "4"}, {"MASTER_PORT", "29500"}, {"RANK", "1"}};
  CHECK(replaced_torch_variables(users, {}) == "RANK=1 WORLD_SIZE=4 MASTER_PORT=29500");
  CHECK(replaced_torch_variables(users, {{"MASTER_PORT", "29500"}, {"RANK", "1"}}) == "RANK=1 WORLD_SIZE=4");
  Environment ours = environment_in(kNumbers, rendezvous_on_second_host());
  CHECK(replaced_torch_variables(ours, {}).empty());
  ours["RANK"] = "55";
  CHECK(replaced_torch_variables(ours, {}) == "RANK=55");
}

}  // namespace

}  // namespace hvd::launcher
