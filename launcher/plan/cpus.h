// The CPUs that hvdrun may use, and what they are parts of.
#pragma once

#include <string>
#include <vector>

namespace hvd::launcher {

struct Cpu {
  int number = 0;  // the kernel's
  int core = 0;    // those of one core share it; cores are numbered here from 0, socket by socket
  int numa = 0;    // the kernel's numbers
  int socket = 0;
  bool operator==(const Cpu&) const = default;
};

// In the order of sockets, NUMA nodes, cores and numbers. Of CPUs about which `sysfs` says nothing, each is a core of
// its own, on one socket.
std::vector<Cpu> read_cpus(const std::vector<int>& numbers, const std::string& sysfs = "/sys/devices/system");

// In this process's affinity mask.
std::vector<int> allowed_cpu_numbers();

// "0-3,8", as the kernel writes it, of ascending numbers. Pure.
std::string format_cpu_list(const std::vector<int>& numbers);

}  // namespace hvd::launcher
