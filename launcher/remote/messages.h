// Converts what hvdrun and an agent exchange to messages of agent.proto and back.
#pragma once

#include "launcher/job/host.h"
#include "launcher/remote/agent.pb.h"

namespace hvd::launcher {

// The description of this host, without its addresses.
proto::Hello local_hello();

// Leaves out the store: the agent serves its own to its ranks.
proto::Start to_message(const HostPlan& plan);

// Throws Internal if the message is malformed.
HostPlan from_message(const proto::Start& message);

}  // namespace hvd::launcher
