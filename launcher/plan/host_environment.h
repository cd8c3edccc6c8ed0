// The environment of ranks on another host: hvdrun's own, so that a virtual environment and its paths are the same
// everywhere, but for what tells of a place, a login or a process, which is the host's. Pure.
#pragma once

#include <string>

#include "launcher/plan/job_environment.h"

namespace hvd::launcher {

// Whether a variable of hvdrun's travels to other hosts.
bool travels(const std::string& name);

// `drivers` is hvdrun's environment, `agents` that in which the host's agent was started. -x comes after this.
Environment environment_on_host(const Environment& drivers, const Environment& agents);

}  // namespace hvd::launcher
