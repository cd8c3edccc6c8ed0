// Converts what hvdrun and its agents exchange to messages of agent.proto and back, including the bootstrap message
// that an agent reads from its standard input.
#pragma once

#include <cstdint>
#include <string>

#include "core/base/clock.h"
#include "core/bootstrap/store_origin.h"
#include "launcher/job/host.h"
#include "launcher/plan/host_resources.h"
#include "launcher/plan/start_command.h"
#include "launcher/remote/agent.pb.h"

namespace hvd::launcher {

// The bytes of each stream that an agent sends without an acknowledgement: so much of the ranks' output may be buffered
// in hvdrun for each host if hvdrun's own reader is slow.
inline constexpr std::size_t kOutputWindow = std::size_t{1} << 20;

// The description of this host, without its addresses.
proto::Hello local_hello();
HostDescription from_message(const proto::Hello& hello);

// Leaves out the store: the agent serves its own to its ranks.
proto::Start to_message(const HostPlan& plan);

// Throws Internal if the message is malformed.
HostPlan from_message(const proto::Start& message);

proto::RankStatus to_message(const RankStatus& status);
RankStatus from_message(const proto::RankStatus& message);

proto::RankEnded to_message(int rank, ExitStatus status, const JobEnding& said);
ExitStatus status_of(const proto::RankEnded& end);
JobEnding said_by(const proto::RankEnded& end);

proto::StoreRequest to_message(std::uint64_t id, const StoreRequest& request);
StoreRequest from_message(const proto::StoreRequest& message);

void put(const AgentOptions& options, proto::Bootstrap& message);
AgentOptions agent_options_of(const proto::Bootstrap& message);

// The address of an agent's parent, and the certificate with which both ends authenticate, for the agent's standard
// input: they appear on no command line and in no file. Pure.
std::string encode_bootstrap(const proto::Bootstrap& bootstrap);

// The host whose agent this process is: that of the bootstrap, or, where one command starts several agents, of the node
// named `node` (srun's SLURMD_NODENAME; null: not set). Throws Internal if there is no such node. Pure.
std::uint32_t node_of(const proto::Bootstrap& bootstrap, const char* node);

// Reads exactly one message from a descriptor. Throws InvalidArgument if the input is something else, or Timeout.
proto::Bootstrap read_bootstrap(int fd, Deadline deadline);

}  // namespace hvd::launcher
