#include "tests/support/transport_ranks.h"

#include <stdexcept>
#include <thread>

#include "core/base/error.h"
#include "core/bootstrap/store.h"
#include "ops/transport/tcp_transport.h"
#include "tests/support/local_transport.h"

namespace hvd::testing {

namespace {

// What the ranks of one run share.
struct Dependencies {
  explicit Dependencies(const TransportRun& transport_run) : run(transport_run), network(transport_run.size) {}

  std::unique_ptr<Transport> make_transport(int rank) {
    const AbortFlag& abort = run.abort != nullptr ? *run.abort : quiet;
    if (run.kind == TransportKind::local) return std::make_unique<LocalTransport>(network, rank, abort);
    const RankIdentity identity{.host_key = "host", .hostname = "host"};
    const Topology topology = make_topology(rank, {static_cast<std::size_t>(run.size), identity});
    const MeshSetup setup{.topology = topology,
                          .store = store,
                          .job_key = key,
                          .local_hosts = networks(),
                          .sockets_per_peer = run.kind == TransportKind::striped_tcp ? 3 : 1,
                          .log = log,
                          .deadline = deadline_after(20s)};
    return make_tcp_transport(setup, run.policy, abort);
  }

  std::vector<std::string> networks() const {
    if (run.kind == TransportKind::striped_tcp) return {"127.0.0.1", "127.0.0.2"};
    return {"127.0.0.1"};
  }

  const TransportRun& run;
  const AbortFlag quiet;
  LocalNetwork network;
  Store store;
  const JobKey key = JobKey::random();
  const Log log{"test", LogLevel::off};
};

}  // namespace

const char* transport_name(TransportKind kind) {
  switch (kind) {
    case TransportKind::local: return "local";
    case TransportKind::tcp: return "tcp";
    case TransportKind::striped_tcp: return "striped tcp";
  }
  return "unknown";
}

std::vector<Status> run_transport_ranks(const TransportRun& run, const RankBody& body) {
  Dependencies dependencies(run);
  std::vector<Status> ended(static_cast<std::size_t>(run.size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < run.size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(dependencies.make_transport(rank));
      } catch (...) {
        ended[static_cast<std::size_t>(rank)] = current_exception_status();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return ended;
}

void run_all_well(const TransportRun& run, const RankBody& body) {
  std::string failures;
  const std::vector<Status> ended = run_transport_ranks(run, body);
  for (std::size_t rank = 0; rank < ended.size(); ++rank) {
    if (!ended[rank].ok()) failures += "rank " + std::to_string(rank) + ": " + ended[rank].message() + "\n";
  }
  if (!failures.empty()) throw std::runtime_error(failures);
}

}  // namespace hvd::testing
