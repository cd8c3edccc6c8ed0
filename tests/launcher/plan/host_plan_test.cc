#include "launcher/plan/host_plan.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/support/catch.h"

namespace hvd::launcher {
namespace {

class Folder {
 public:
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "hvd_program_XXXXXX").string();
    REQUIRE(mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string add(const std::string& name, mode_t mode) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name) << "#!/bin/sh\n";
    chmod((path_ / name).c_str(), mode);
    return path_ / name;
  }
  std::string operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

TEST_CASE("programs are found as shells find them") {
  const Folder folder;
  const std::string plain = folder.add("a/tool", 0644);
  const std::string good = folder.add("b/tool", 0755);
  folder.add("c/tool", 0755);
  const std::string path = folder / "missing" + ":" + (folder / "a") + ":" + (folder / "b") + ":" + (folder / "c");
  CHECK(find_program("tool", path) == good);
  CHECK(find_program(good, "") == good);

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
      find_program(row.name, path);
      FAIL("no error");
    } catch (const ProgramUnusable& error) {
      CHECK(error.exit_code() == row.exit_code);
      CHECK(std::string(error.what()).find(row.in_message) != std::string::npos);
    }
  }
  try {
    find_program("tool", folder / "a");
    FAIL("no error");
  } catch (const ProgramUnusable& error) {
    CHECK(error.exit_code() == 126);
  }
}

TEST_CASE("without PATH the system's folders are looked in") {
  CHECK(search_path_of({{"PATH", "/a:/b"}}) == "/a:/b");
  CHECK(search_path_of({{"PATH", ""}}).empty());
  CHECK(find_program("sh", search_path_of({{"OTHER", "1"}})).ends_with("/sh"));
}

RankPlan planned_rank(int number, int size, int local_rank, int local_size) {
  return {.place = {.rank = number, .size = size, .local_rank = local_rank, .local_size = local_size}};
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
  first.place.cross_size = third.place.cross_size = 2;
  third.place.cross_rank = 1;
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

}  // namespace
}  // namespace hvd::launcher
