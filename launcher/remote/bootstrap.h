// What an agent is given on its standard input, so that it stands on no command line and in no file: whom to reach, and
// the certificate by which both ends know each other.
#pragma once

#include <string>

#include "core/base/clock.h"
#include "launcher/remote/agent.pb.h"

namespace hvd::launcher {

// Pure.
std::string encode_bootstrap(const proto::Bootstrap& bootstrap);

// Reads from a descriptor as much as there is of it. Throws InvalidArgument if it is something else, Timeout.
proto::Bootstrap read_bootstrap(int fd, Deadline deadline);

}  // namespace hvd::launcher
