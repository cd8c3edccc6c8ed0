// The bootstrap message that an agent reads from its standard input: the address of its parent, and the certificate
// with which both ends authenticate. It appears on no command line and in no file.
#pragma once

#include <string>

#include "core/base/clock.h"
#include "launcher/remote/agent.pb.h"

namespace hvd::launcher {

// Pure.
std::string encode_bootstrap(const proto::Bootstrap& bootstrap);

// Reads exactly one message from a descriptor. Throws InvalidArgument if the input is something else, or Timeout.
proto::Bootstrap read_bootstrap(int fd, Deadline deadline);

}  // namespace hvd::launcher
