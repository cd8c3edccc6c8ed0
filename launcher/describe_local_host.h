// What this machine says of itself to whoever plans a job.
#pragma once

#include <string>

#include "launcher/job_layout.h"

namespace hvd::launcher {

std::string local_hostname();

// Without the addresses. Reads /sys and the driver's list of GPUs.
HostDescription describe_local_host();

}  // namespace hvd::launcher
