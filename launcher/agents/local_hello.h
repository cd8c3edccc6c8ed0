// What a host says of itself.
#pragma once

#include "launcher/proto/agent.pb.h"

namespace hvd::launcher {

// Without the addresses.
proto::Hello local_hello();

}  // namespace hvd::launcher
