// Replaces the rest of this folder when hvdrun is built without gRPC.
#include "core/base/error.h"
#include "launcher/remote/listening_agent.h"
#include "launcher/remote/run_on_hosts.h"

namespace hvd::launcher {

namespace {

[[noreturn]] void refuse() {
  throw Unsupported(
      "this hvdrun was built without gRPC, and so starts jobs on this machine only. Install gRPC for C++ (on Debian "
      "libgrpc++-dev and protobuf-compiler-grpc), and then hvd anew; or start the job with --launcher mpi");
}

}  // namespace

int run_on_hosts(JobOptions, HostsToUse, SignalSource&) { refuse(); }

int run_elastic(const JobOptions&, ElasticHosts, SignalSource&) { refuse(); }

int run_agent(SignalSource&, bool) { refuse(); }

ListenOptions parse_listen(const std::vector<std::string>&) { refuse(); }

int run_listening_agent(const ListenOptions&, SignalSource&) { refuse(); }

int call_agent(const std::string&, Duration, SignalSource&) { refuse(); }

}  // namespace hvd::launcher
