// The CPUs and GPUs of a host, and the description of the machine that hvdrun or an agent runs on.
#pragma once

#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hvd::launcher {

// Parses a decimal number within these limits; empty for any other text. Pure.
std::optional<int> number_within(std::string_view text, int least, int most = std::numeric_limits<int>::max());

// A CPU that hvdrun may use, with its core, NUMA node and socket.
struct Cpu {
  int number = 0;  // the kernel's number
  int core = 0;    // shared by the hardware threads of a core; numbered here from 0, socket by socket
  int numa = 0;    // the kernel's number, as is `socket`
  int socket = 0;
  bool operator==(const Cpu&) const = default;
};

// These CPUs, sorted by socket, NUMA node, core and number; those missing in `sysfs` are cores of one socket.
std::vector<Cpu> read_cpus(const std::vector<int>& numbers, const std::string& sysfs = "/sys/devices/system");

// The CPUs in this process's affinity mask.
std::vector<int> allowed_cpu_numbers();

// Formats ascending numbers as the kernel does: "0-3,8". Pure.
std::string format_cpu_list(const std::vector<int>& numbers);

// --gpus-per-rank: the GPUs that each rank of a host may see; without that option CUDA_VISIBLE_DEVICES is unchanged.
struct GpusPerRank {
  std::optional<int> number;  // empty: all GPUs of the host, divided evenly ("auto")
  bool operator==(const GpusPerRank&) const = default;
};

// "auto" (MPICH writes AUTO) or a number; throws InvalidArgument.
GpusPerRank parse_gpus_per_rank(const std::string& text);

// Returns the indices of a rank's GPUs among those of its host. When GPUs are divided evenly, ranks share them if there
// are fewer GPUs than ranks; empty if the host has none. Throws InvalidArgument if a number is requested and there are
// too few; `host` is used in its text.
std::vector<int> gpus_of_rank(const GpusPerRank& rule, int local_rank, int local_size, int gpus_on_host,
                              const std::string& host);

// The value of CUDA_VISIBLE_DEVICES for a rank: the devices at these indices of the host's own value; empty: no GPUs.
std::string visible_devices(const std::vector<int>& gpus, const std::optional<std::string>& own_value);

// How many GPUs a process of this host sees. Does not call CUDA: `driver` is the folder in which its driver lists them.
int count_gpus(const std::optional<std::string>& visible, const std::string& driver = "/proc/driver/nvidia/gpus");

// The CPUs and GPUs that a host reports.
struct HostResources {
  std::vector<Cpu> cpus;  // that ranks may use
  int gpus = 0;
};

// Describes the machine that hvdrun or an agent runs on, for the plan of a job.
struct HostDescription {
  std::string hostname;
  std::string local_address, parent_address;  // numeric: both ends of its connection to hvdrun (or another agent)
  HostResources resources;
  std::optional<std::string> visible_gpus{};  // its CUDA_VISIBLE_DEVICES
  int reserved_port = 0;                      // for a server that rank 0 starts, if it runs there
};

std::string local_hostname();

// Leaves the addresses empty. Reads /sys and the driver's list of GPUs.
HostDescription describe_local_host();

}  // namespace hvd::launcher
