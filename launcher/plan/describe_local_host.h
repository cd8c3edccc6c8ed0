// Describes the machine that hvdrun or an agent runs on, for the plan of a job.
#pragma once

#include <optional>
#include <string>

#include "launcher/plan/slots.h"

namespace hvd::launcher {

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
