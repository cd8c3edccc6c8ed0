// What hvdrun, or an agent, reports of the machine that it runs on, for the plan of a job.
#pragma once

#include <optional>
#include <string>

#include "launcher/plan/slots.h"

namespace hvd::launcher {

struct HostDescription {
  std::string hostname;
  std::string local_address, parent_address;  // numeric: how it reached hvdrun (or another agent), and where
  HostResources resources;
  std::optional<std::string> visible_gpus{};  // its CUDA_VISIBLE_DEVICES
  int reserved_port = 0;                      // for a server of rank 0's, if it runs there
};

std::string local_hostname();

// Without the addresses. Reads /sys and the driver's list of GPUs.
HostDescription describe_local_host();

}  // namespace hvd::launcher
