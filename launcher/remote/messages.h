// What hvdrun and its agents tell each other, converted to messages of agent.proto and back; and the bootstrap message
// that an agent reads from its standard input.
#pragma once

#include <string>
#include <vector>

#include "core/base/clock.h"
#include "launcher/job/host.h"
#include "launcher/remote/agent.pb.h"

namespace hvd::launcher {

// The bytes of each stream that an agent sends without an acknowledgement: so much of the ranks' output may be buffered
// in hvdrun for each host if hvdrun's own reader is slow.
inline constexpr std::size_t kOutputWindow = std::size_t{1} << 20;

// The description of this host, without its addresses.
proto::Hello local_hello();

// Leaves out the store: the agent serves its own to its ranks.
proto::Start to_message(const HostPlan& plan);

// Throws Internal if the message is malformed.
HostPlan from_message(const proto::Start& message);

// The address of an agent's parent, and the certificate with which both ends authenticate, for the agent's standard
// input: they appear on no command line and in no file. Pure.
std::string encode_bootstrap(const proto::Bootstrap& bootstrap);

// Reads exactly one message from a descriptor. Throws InvalidArgument if the input is something else, or Timeout.
proto::Bootstrap read_bootstrap(int fd, Deadline deadline);

}  // namespace hvd::launcher
