// A host's plan as a message, and back. Pure.
#pragma once

#include "launcher/host.h"
#include "launcher/proto/agent.pb.h"

namespace hvd::launcher {

// What differs between a job's ranks on one host and another's is in the plan; the store is the agent's own affair.
proto::Start to_message(const HostPlan& plan);

// Throws Internal if no to_message() can have made it.
HostPlan from_message(const proto::Start& message);

}  // namespace hvd::launcher
