// What this process tells the others of itself.
#pragma once

#include <string>

#include "core/rendezvous/topology.h"

namespace hvd {

// `host_id` and `hostname` replace what is found out, if not empty (HVD_HOST_ID, HVD_HOSTNAME). Found out: the
// kernel's boot, the network namespace (abstract sockets belong to one), the host name and the user (another user's
// memory shall not be mapped) make the host key.
RankIdentity identify_this_process(const std::string& host_id, const std::string& hostname);

}  // namespace hvd
