#include "launcher/plan/cpus.h"

#include <filesystem>
#include <fstream>

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

}  // namespace
}  // namespace hvd::launcher
