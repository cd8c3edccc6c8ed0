#include "launcher/plan/host_resources.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "core/base/error.h"
#include "tests/support/catch.h"

namespace hvd::launcher {
namespace {

// A folder like /sys/devices/system.
class Sysfs {
 public:
  Sysfs() : path_(std::filesystem::temp_directory_path() / ("hvd-cpus-" + std::to_string(getpid()))) {}
  ~Sysfs() { std::filesystem::remove_all(path_); }

  void write(const std::string& file, const std::string& text) const {
    std::filesystem::create_directories((path_ / file).parent_path());
    std::ofstream(path_ / file) << text << "\n";
  }
  void write_cpu(int cpu, int core, int socket) const {
    const std::string folder = "cpu/cpu" + std::to_string(cpu) + "/topology/";
    write(folder + "core_id", std::to_string(core));
    write(folder + "physical_package_id", std::to_string(socket));
  }
  std::string path() const { return path_; }

 private:
  std::filesystem::path path_;
};

TEST_CASE("CPUs are found by socket, NUMA node and core") {
  const Sysfs sysfs;
  // Two sockets of two cores with two threads each, numbered as servers often are; core numbers have gaps.
  for (int cpu = 0; cpu < 8; ++cpu) sysfs.write_cpu(cpu, cpu / 2 % 2 * 7, cpu % 2);
  sysfs.write("node/node0/cpulist", "0,2,4,6");
  sysfs.write("node/node1/cpulist", "1,3,5,7");
  sysfs.write("node/possible", "0-1");
  CHECK(read_cpus({0, 1, 2, 3, 4, 5, 6, 7}, sysfs.path()) ==
        std::vector<Cpu>{{.number = 0, .core = 0, .numa = 0, .socket = 0},
                         {.number = 4, .core = 0, .numa = 0, .socket = 0},
                         {.number = 2, .core = 1, .numa = 0, .socket = 0},
                         {.number = 6, .core = 1, .numa = 0, .socket = 0},
                         {.number = 1, .core = 2, .numa = 1, .socket = 1},
                         {.number = 5, .core = 2, .numa = 1, .socket = 1},
                         {.number = 3, .core = 3, .numa = 1, .socket = 1},
                         {.number = 7, .core = 3, .numa = 1, .socket = 1}});
  CHECK(read_cpus({3, 2}, sysfs.path()) == std::vector<Cpu>{{.number = 2, .core = 0, .numa = 0, .socket = 0},
                                                            {.number = 3, .core = 1, .numa = 1, .socket = 1}});
}

TEST_CASE("where the kernel tells nothing, each CPU is a core") {
  CHECK(read_cpus({2, 0}, "/nowhere") == std::vector<Cpu>{{.number = 0, .core = 0}, {.number = 2, .core = 1}});
}

TEST_CASE("this process may use the CPUs that it is told") { CHECK_FALSE(allowed_cpu_numbers().empty()); }

TEST_CASE("lists of CPUs are written as the kernel does") {
  CHECK(format_cpu_list({0, 1, 2, 3, 8}) == "0-3,8");
  CHECK(format_cpu_list({}).empty());
  CHECK(format_cpu_list({7}) == "7");
}

using Gpus = std::vector<int>;

// A folder in which a driver lists its GPUs.
class Driver {
 public:
  Driver() { std::filesystem::create_directories(path_); }
  ~Driver() { std::filesystem::remove_all(path_); }
  std::string path() const { return path_; }
  void add(const char* gpu) const { std::filesystem::create_directory(path_ / gpu); }

 private:
  const std::filesystem::path path_ = std::filesystem::temp_directory_path() / ("hvd-gpus-" + std::to_string(getpid()));
};

TEST_CASE("each rank of a host has GPUs of its own") {
  struct Row {
    const char* rule;
    int local_rank, local_size, on_host;
    Gpus gpus;
  };
  const Row rows[] = {
      {"1", 0, 4, 4, {0}},
      {"1", 3, 4, 4, {3}},
      {"2", 1, 4, 8, {2, 3}},
      {"2", 1, 2, 8, {2, 3}},
      {"auto", 1, 2, 8, {4, 5, 6, 7}},
      {"auto", 2, 3, 8, {4, 5}},
      {"auto", 3, 4, 4, {3}},
      {"auto", 5, 8, 4, {1}},
      {"auto", 0, 4, 0, {}},
  };
  for (const Row& row : rows) {
    CAPTURE(row.rule, row.local_rank, row.local_size, row.on_host);
    CHECK(gpus_of_rank(parse_gpus_per_rank(row.rule), row.local_rank, row.local_size, row.on_host, "node7") ==
          row.gpus);
  }
  CHECK_THROWS_WITH(gpus_of_rank(parse_gpus_per_rank("2"), 0, 4, 4, "node7"),
                    "--gpus-per-rank 2: node7 has 4 ranks and 4 GPUs");
  for (const char* text : {"", "0", "-1", "all", "2x", "99999"}) {
    CHECK_THROWS_WITH(parse_gpus_per_rank(text), Catch::Matchers::Contains("--gpus-per-rank"));
  }
}

TEST_CASE("a rank's GPUs are some of those that its host's variable lists") {
  CHECK(visible_devices({0, 1}, std::nullopt) == "0,1");
  CHECK(visible_devices({1}, "4,5") == "5");
  CHECK(visible_devices({0, 1}, "GPU-3fa1,MIG-77") == "GPU-3fa1,MIG-77");
  CHECK(visible_devices({}, "4,5").empty());
}

TEST_CASE("GPUs are counted where the driver lists them") {
  const Driver driver;
  CHECK(count_gpus(std::nullopt, driver.path() + "/nothing") == 0);
  CHECK(count_gpus("0,1", driver.path() + "/nothing") == 0);
  driver.add("0000:01:00.0");
  driver.add("0000:02:00.0");
  CHECK(count_gpus(std::nullopt, driver.path()) == 2);
  CHECK(count_gpus("1", driver.path()) == 1);
  CHECK(count_gpus("", driver.path()) == 0);
  CHECK(count_gpus("0,-1,1", driver.path()) == 1);
  CHECK(count_gpus("MIG-1,MIG-2,MIG-3", driver.path()) == 3);
}

}  // namespace
}  // namespace hvd::launcher
