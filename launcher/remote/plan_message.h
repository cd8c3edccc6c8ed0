// What hvdrun and an agent exchange before ranks start: the host's description, and its plan as a message and back.
#pragma once

#include "launcher/job/host.h"
#include "launcher/remote/agent.pb.h"

namespace hvd::launcher {

// Describes this host, without its addresses.
proto::Hello local_hello();

// What differs between a job's ranks on one host and another's is in the plan; the store is the agent's own affair.
proto::Start to_message(const HostPlan& plan);

// Throws Internal if no to_message() can have made it.
HostPlan from_message(const proto::Start& message);

}  // namespace hvd::launcher
