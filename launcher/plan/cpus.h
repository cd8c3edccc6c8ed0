// The CPUs that hvdrun may use, and their cores, NUMA nodes and sockets.
#pragma once

#include <string>
#include <vector>

namespace hvd::launcher {

struct Cpu {
  int number = 0;  // the kernel's number
  int core = 0;    // shared by the hardware threads of a core; numbered here from 0, socket by socket
  int numa = 0;    // the kernel's number, as is `socket`
  int socket = 0;
  bool operator==(const Cpu&) const = default;
};

// Reads the topology of these CPUs, sorted by socket, NUMA node, core and number. CPUs that are missing in `sysfs`
// count as separate cores of one socket.
std::vector<Cpu> read_cpus(const std::vector<int>& numbers, const std::string& sysfs = "/sys/devices/system");

// The CPUs in this process's affinity mask.
std::vector<int> allowed_cpu_numbers();

// Formats ascending numbers as the kernel does: "0-3,8". Pure.
std::string format_cpu_list(const std::vector<int>& numbers);

}  // namespace hvd::launcher
