#include "ops/registry.h"

#include <algorithm>
#include <numeric>

#include "core/base/wait_policy.h"
#include "core/rendezvous/share_with_host.h"
#include "ops/algorithms/transport_backend.h"
#include "ops/host/host_backend.h"
#include "ops/host/two_level_backend.h"
#include "ops/transport/tcp/tcp_transport.h"

namespace hvd {

namespace {

// A backend lives no longer than the topology, but its texts are made where only the transport is at hand.
DescribeRank describer(const Topology& topology) {
  return [&topology](int rank) { return topology.describe(rank); };
}

std::shared_ptr<Transport> connect_all(const BackendContext& context) {
  const Topology& topology = context.topology;
  std::vector<int> ranks(static_cast<std::size_t>(topology.size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return std::make_shared<TcpTransport>(MeshSetup{.rank = topology.rank,
                                                  .ranks = std::move(ranks),
                                                  .store = context.store,
                                                  .job_key = context.job_key,
                                                  .own_host = context.own_host_address,
                                                  .describe = describer(topology),
                                                  .log = context.log,
                                                  .deadline = context.deadline},
                                        wait_policy_for(topology.local_size, allowed_cpus()), context.abort);
}

// The window of a host, and the mapping that it lies in.
struct MappedGroup {
  MappedGroup(SharedMemory mapped, const BackendContext& context)
      : memory(std::move(mapped)),
        group({memory.data(), memory.size()}, context.topology.local_rank, context.topology.local_size,
              {.chunk_bytes = static_cast<std::size_t>(context.config.chunk_bytes),
               .timeout = context.config.collective_timeout,
               .start_timeout = context.config.start_timeout},
              &context.abort, [&topology = context.topology](int local) {
                return topology.describe(
                    topology.hosts[static_cast<std::size_t>(topology.host())][static_cast<std::size_t>(local)]);
              }) {}

  SharedMemory memory;
  HostGroup group;
};

std::shared_ptr<HostGroup> open_host_group(const BackendContext& context) {
  const std::size_t bytes =
      HostGroup::region_bytes(context.topology.local_size, static_cast<std::size_t>(context.config.chunk_bytes));
  SharedMemory memory = context.topology.local_size == 1
                            ? SharedMemory::create(bytes, "data")
                            : share_with_host(context.topology, context.store, context.job_key, "data", bytes,
                                              context.log, context.deadline);
  auto mapped = std::make_shared<MappedGroup>(std::move(memory), context);
  return {mapped, &mapped->group};
}

}  // namespace

std::vector<std::unique_ptr<Backend>> make_backends(const BackendContext& context) {
  const Topology& topology = context.topology;
  const bool one_host = topology.hosts.size() == 1;
  const bool shared = context.config.shared_memory || topology.size == 1;
  std::vector<std::unique_ptr<Backend>> backends;
  if (shared && one_host) {
    backends.push_back(std::make_unique<HostBackend>(open_host_group(context), topology));
    return backends;
  }
  const auto transport = connect_all(context);
  const ChooseAllreduce choose_allreduce = choose_by_size(context.config.deterministic);
  const bool several_on_a_host = topology.hosts.size() < static_cast<std::size_t>(topology.size);
  if (shared && several_on_a_host) {
    backends.push_back(std::make_unique<TwoLevelBackend>(open_host_group(context), transport, topology,
                                                         context.config.collective_timeout, choose_allreduce));
  }
  backends.push_back(
      std::make_unique<TransportBackend>("tcp", transport, context.config.collective_timeout, choose_allreduce));
  return backends;
}

}  // namespace hvd
