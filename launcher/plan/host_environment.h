// The environment of ranks on another host: hvdrun's, so that a virtual environment and its paths are the same on all
// hosts, except for variables that describe a host, a login or a process; those are the host's. Pure.
#pragma once

#include <string>

#include "launcher/plan/job_environment.h"

namespace hvd::launcher {

// Whether a variable of hvdrun's environment is transmitted to other hosts.
bool travels(const std::string& name);

// `drivers` is hvdrun's environment, `agents` the one in which the host's agent was started. -x is applied afterwards.
Environment environment_on_host(const Environment& drivers, const Environment& agents);

}  // namespace hvd::launcher
