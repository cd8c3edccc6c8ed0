// Determines the identity of this process that the other ranks receive.
#pragma once

#include <string>

#include "core/bootstrap/topology.h"

namespace hvd {

// `host_id` and `hostname`, if not empty, replace the detected values (HVD_HOST_ID, HVD_HOSTNAME). The host key is made
// of the kernel's boot id, the network namespace (abstract sockets belong to one), the host name and the user (another
// user's memory must not be mapped).
RankIdentity identify_this_process(const std::string& host_id, const std::string& hostname);

}  // namespace hvd
