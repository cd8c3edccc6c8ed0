// How hvdrun reaches hosts without ssh, in Kubernetes, Spark and Ray: an agent listens there, and hvdrun calls it.
//
// hvdrun starts agents by shell commands (start_command.h). Here the command is `hvdrun agent --call`, which passes its
// standard input to the listening agent over an encrypted connection (sealed_stream.h), as ssh would. The listening
// agent starts `hvdrun agent` with that input, and sends its output and its exit status back. Both ends know the key in
// the variable HVD_JOB_KEY; it is not that of the jobs that they run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "launcher/processes/event_loop.h"

namespace hvd::launcher {

// `hvdrun agent --listen [ADDRESS:]PORT [--once] [--until-eof]`
struct ListenOptions {
  std::string host = "0.0.0.0";
  std::uint16_t port = 0;  // 0: any free one
  bool once = false;       // end with the first job
  bool until_eof = false;  // end at the end of standard input, a pipe whose other end the starting process holds
  bool operator==(const ListenOptions&) const = default;
};

// `words`: behind `agent`. Throws InvalidArgument. Pure.
ListenOptions parse_listen(const std::vector<std::string>& words);

// Serves one hvdrun after the other; others wait meanwhile. Prints the port on standard output. SIGTERM is passed to
// the agent that runs, and this function returns 143 when that has ended: a scheduler is to start it anew. With `once`
// it returns the agent's exit code: 0 if hvdrun has ended the job. With `until_eof` the agent and its ranks end at
// the end of standard input, so that they do not outlive the process that started them, even if that is killed. Throws
// InvalidArgument.
int run_listening_agent(const ListenOptions& options, SignalSource& signals);

// `hvdrun agent --call ADDRESS:PORT SECONDS`: see above. Tries until an agent listens there, for so many seconds at
// most. Returns the agent's exit code; 1 and a line on standard error if there is none, or it refuses.
int call_agent(const std::string& address, Duration timeout, SignalSource& signals);

}  // namespace hvd::launcher
