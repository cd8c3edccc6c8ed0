#include "ops/registry.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/futex.h"
#include "core/base/text.h"
#include "core/net/endpoint.h"
#include "ops/algorithms/transport_backend.h"
#include "ops/channel/socket_channel.h"
#include "ops/choice/algorithm_table.h"
#include "ops/choice/host_choice.h"
#include "ops/gpu/cuda_driver.h"
#include "ops/gpu/nccl_backend.h"
#include "ops/host/collectives.h"
#include "ops/host/host_context.h"
#include "ops/mpi/mpi_library.h"
#include "ops/plugin/plugin_backend.h"
#include "ops/transport/tcp_mesh.h"
#include "ops/transport/tcp_transport.h"
#include "ops/two_level/two_level.h"

namespace hvd {

namespace {

std::vector<std::string> data_addresses(const BackendContext& context) {
  const std::vector<std::string> interfaces = split_list(context.config.data_plane.network_interfaces, ',');
  if (interfaces.empty()) return {context.local_host_address};
  return equally_fast(addresses_of(local_addresses(), interfaces, "HVD_NETWORK_INTERFACES"), link_speed);
}

std::shared_ptr<Transport> connect_all(const BackendContext& context) {
  const Topology& topology = context.topology;
  const int wanted_sockets = context.config.data_plane.sockets_per_peer;
  const std::vector<std::string> addresses = data_addresses(context);
  return make_tcp_transport(
      MeshSetup{
          .topology = topology,
          .store = context.store,
          .job_key = context.job_key,
          .local_hosts = addresses,
          .sockets_per_peer = wanted_sockets > 0 ? wanted_sockets : sockets_for_speed(link_speed(addresses.front())),
          .lease = context.config.timeouts.lease,
          .log = context.log,
          .deadline = context.deadline},
      network_wait_policy_for(topology.machine), context.abort,
      context.config.timeouts.gives_up_stalls() ? context.config.timeouts.silence_limit() : Duration());
}

// A leader waits for the ranks of its host, leaders wait for each other, and the ranks of a host wait for the results
// that their leader gets from other leaders: the timeouts expire in this order.
struct PhaseTimeouts {
  Duration inside_host;
  Duration between_hosts;
};

PhaseTimeouts phase_timeouts(const BackendContext& context) {
  const Topology& topology = context.topology;
  const Config& config = context.config;
  const bool by_two_levels = config.data_plane.shared_memory && topology.hosts.size() > 1 &&
                             topology.hosts.size() < static_cast<std::size_t>(topology.size);
  return {.inside_host = config.timeouts.silence_limit(by_two_levels && topology.local_rank != 0 ? 2 : 0),
          .between_hosts = config.timeouts.silence_limit(by_two_levels ? 1 : 0)};
}

// The memory that the ranks of a host share: one file with the window, which all ranks map, followed by the arena.
struct SharedHost {
  static std::size_t window_bytes(const BackendContext& context) {
    return whole_pages(WindowMemory::region_bytes(context.topology.local_size,
                                                  static_cast<std::size_t>(context.config.data_plane.chunk_bytes)));
  }
  static ArenaLayout arena_layout(const BackendContext& context) {
    const std::size_t limit = whole_pages(static_cast<std::size_t>(context.config.data_plane.arena_limit_bytes));
    const int ranks = context.topology.local_size;
    return {.first = window_bytes(context), .part_bytes = ranks == 1 ? 0 : limit, .ranks = ranks};
  }

  SharedHost(SharedMemory shared, const BackendContext& context)
      : memory(std::make_shared<SharedMemory>(std::move(shared))),
        arena(arena_layout(context).part_bytes == 0
                  ? nullptr
                  : std::make_shared<TensorArena>(memory, arena_layout(context), context.topology.local_rank)),
        collectives({memory->data(), window_bytes(context)}, arena.get(), context.topology.local_rank,
                    context.topology.local_size,
                    {.chunk_bytes = static_cast<std::size_t>(context.config.data_plane.chunk_bytes),
                     .cpu_use = context.topology.machine,
                     .timeout = phase_timeouts(context).inside_host,
                     .start_timeout = context.config.timeouts.start},
                    &context.abort, [&topology = context.topology](int local) {
                      return topology.describe(
                          topology.hosts[static_cast<std::size_t>(topology.host())][static_cast<std::size_t>(local)]);
                    }) {}

  const std::shared_ptr<SharedMemory> memory;
  const std::shared_ptr<TensorArena> arena;
  HostContext collectives;
};

std::shared_ptr<SharedHost> share_host(const BackendContext& context) {
  return std::make_shared<SharedHost>(
      share_with_host(context.topology, context.store, context.job_key, "data",
                      {SharedHost::arena_layout(context).end(), SharedHost::window_bytes(context)}, context.log,
                      context.deadline),
      context);
}

void log_on_rank_0(const BackendContext& context, LogLevel level, const std::string& text) {
  if (context.topology.job_rank() == 0) context.log.write(level, text);
}

constexpr const char* kTcp = "tcp";

// The transport between the hosts, and its costs.
struct Links {
  std::shared_ptr<Transport> transport;
  LinkCosts costs;
  const char* name = kTcp;
};

Links links_over(std::shared_ptr<Transport> transport, const char* name, const BackendContext& context,
                 const std::vector<int>& members, const std::optional<LinkCosts>& given_costs) {
  const LinkCosts costs = given_costs ? *given_costs : measure_links({*transport, members, context.deadline});
  return {std::move(transport), costs, name};
}

// Returns MPI's messages if MPI is required, or if it is permitted and faster; otherwise TCP.
Links links_between(const BackendContext& context, const std::shared_ptr<PluginCommunicator>& mpi,
                    const std::vector<int>& members, const std::optional<LinkCosts>& given_costs) {
  const Topology& topology = context.topology;
  std::optional<Links> through_mpi;
  if (mpi && mpi->has_transport()) {
    const WaitPolicy policy = network_wait_policy_for(topology.machine);
    through_mpi = links_over(make_plugin_transport(mpi, topology, policy, context.abort), "mpi-messages", context,
                             members, given_costs);
    if (context.config.data_plane.cpu_backend != CpuBackend::automatic) return *through_mpi;
  }
  Links through_tcp = links_over(connect_all(context), kTcp, context, members, given_costs);
  if (!through_mpi) return through_tcp;
  const TransportChoice choice =
      choose_transport(through_mpi->costs, through_tcp.costs, static_cast<int>(members.size()));
  log_on_rank_0(context, LogLevel::info, choice.reason);
  return choice.mpi ? *through_mpi : through_tcp;
}

std::vector<Backend*> backends_of(const DataPlane& plane) {
  std::vector<Backend*> backends;
  for (const auto& backend : plane.backends) backends.push_back(backend.get());
  return backends;
}

// Returns the ranks' communicator in a plugin, or null and the objection; the same on all ranks.
std::shared_ptr<PluginCommunicator> open_on_all(const BackendContext& context, const std::string& key,
                                                const std::function<std::shared_ptr<const PluginLibrary>()>& open,
                                                std::string& objection) {
  std::shared_ptr<const PluginLibrary> library;
  std::string own;
  try {
    library = open();
  } catch (const Error& error) {
    own = error.what();
  }
  const auto agree = [&](const char* what) {
    objection = first_objection(context.store, context.topology, key + what, own, context.deadline);
    return objection.empty();
  };
  if (!agree("/library")) return nullptr;
  std::shared_ptr<PluginCommunicator> communicator;
  try {
    communicator = PluginCommunicator::open(library, context.topology, context.abort, context.log, context.deadline);
  } catch (const Error& error) {
    if (context.abort.raised() || Clock::now() >= context.deadline) throw;  // too late for the ranks to agree
    own = error.what();
  }
  return agree("/group") ? communicator : nullptr;
}

// MPI's ranks are those of the job, unless the job has only some of MPI's ranks or another launcher.
void check_ranks(const PluginLibrary& library, const Topology& topology) {
  std::int32_t rank = 0, size = 0;
  library.check(library.table().launch->join(&rank, &size));
  const int highest = *std::max_element(topology.job_ranks.begin(), topology.job_ranks.end());
  if (rank == topology.job_rank() && highest < size) return;
  throw Unsupported("in MPI this process is rank " + std::to_string(rank) + " of " + std::to_string(size) +
                    ", but in the job it is rank " + std::to_string(topology.job_rank()) +
                    ": start all of the job with MPI's own launcher");
}

// Returns the ranks' communicator in MPI, for its collectives and its messages; null if MPI is not to be used:
// HVD_CPU_BACKEND=host, or auto and the job is on one host, has one rank, was not started by MPI, or a rank cannot use
// it, which is logged. Throws Unsupported, on every rank, if HVD_CPU_BACKEND requires MPI and a rank cannot use it.
std::shared_ptr<PluginCommunicator> join_mpi_communicator(const BackendContext& context) {
  const CpuBackend wanted = context.config.data_plane.cpu_backend;
  if (wanted == CpuBackend::host || context.topology.size == 1) return nullptr;
  const bool automatic = wanted == CpuBackend::automatic;
  const bool one_host = context.topology.hosts.size() == 1;
  if (one_host && (automatic || (wanted == CpuBackend::mpi_messages && context.config.data_plane.shared_memory)))
    return nullptr;
  std::string objection;
  auto communicator = open_on_all(
      context, "mpi",
      [&] {
        auto library = automatic ? mpi_of_this_job() : open_mpi(context.config.data_plane.mpi_library, Launch{});
        check_ranks(*library, context.topology);
        return library;
      },
      objection);
  if (communicator) return communicator;
  if (!automatic) throw Unsupported("HVD_CPU_BACKEND asks for MPI, which cannot be used on " + objection);
  log_on_rank_0(context, LogLevel::info, "data does not go through MPI: " + objection);
  return nullptr;
}

// Adds the communicator's backend; it may pass calls on to the backends that are already in the plane.
void add_plugin_backend(DataPlane& plane, std::shared_ptr<PluginCommunicator> communicator,
                        const BackendContext& context) {
  // A call is handed to another thread of this rank: if the two threads share a CPU, the waiting one must yield at
  // once.
  const CpuUse& machine = context.topology.machine;
  WaitPolicy policy = wait_policy_for({.ranks = 2 * machine.ranks, .cpus = machine.cpus});
  policy.yields = 0;
  // Destroyed before the backends that it passes calls on to.
  plane.backends.push_back(make_plugin_backend(std::move(communicator), backends_of(plane), policy, context.abort,
                                               context.config.timeouts.collective));
}

// Adds the plugins of HVD_PLUGINS. A plugin that some rank cannot open is omitted on all ranks, with a warning.
void add_named_plugins(DataPlane& plane, const BackendContext& context) {
  const std::vector<std::string> paths = split_list(context.config.data_plane.plugins, ':');
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const std::string& path = paths[i];
    std::string objection;
    auto communicator = open_on_all(
        context, "plugin/" + std::to_string(i), [&path] { return std::make_shared<const PluginLibrary>(path); },
        objection);
    if (communicator) {
      add_plugin_backend(plane, std::move(communicator), context);
    } else {
      log_on_rank_0(context, LogLevel::warning, "going on without a plugin of HVD_PLUGINS: " + objection);
    }
  }
}

DataPlane make_own(const BackendContext& context, const std::shared_ptr<PluginCommunicator>& mpi,
                   const std::optional<LinkCosts>& given_costs) {
  const Topology& topology = context.topology;
  const Config& config = context.config;
  AlgorithmOverride wanted = parse_algorithm_override(config.data_plane.algorithm, config.data_plane.deterministic);
  const InstructionSet instruction_set = instruction_set_from(config.data_plane.instruction_set);
  const bool one_host = topology.hosts.size() == 1;
  const bool several_on_a_host = topology.hosts.size() < static_cast<std::size_t>(topology.size);
  const bool shares = topology.size == 1 || (config.data_plane.shared_memory && several_on_a_host);
  DataPlane plane;
  std::shared_ptr<HostContext> host_context;
  if (shares) {
    const auto host = share_host(context);
    host_context = {host, &host->collectives};
    host_context->wanted = wanted.inside_host;
    if (topology.job_rank() == 0)
      host_context->report = [&log = context.log](const std::string& text) { log.info(text); };
    plane.arena = host->arena;
  }
  if (shares && one_host) {
    plane.algorithms = host_form_text(host_context->shape(), !wanted.allreduce.empty());
    plane.bucket_bytes = kHostBucketBytes;
    plane.backends.push_back(make_host_backend(host_context, topology, instruction_set));
    return plane;
  }
  // The ranks between which an allreduce of all ranks uses the transport.
  const std::vector<int> members = shares ? leaders_of(topology) : all_ranks(topology.size);
  const Links links = links_between(context, mpi, members, given_costs);
  const auto& transport = links.transport;
  AllreduceChoice choice(
      {.costs = links.costs, .deterministic = config.data_plane.deterministic, .override = std::move(wanted)});
  plane.bucket_bytes = std::max(bucket_bytes(choice, static_cast<int>(members.size())), shares ? kHostBucketBytes : 0);
  plane.algorithms = choice.text(static_cast<int>(members.size()), shares);
  const auto [inside_host, between_hosts] = phase_timeouts(context);
  // MPI does not report whether bytes still move.
  const Duration timeout = std::string_view(links.name) == kTcp ? between_hosts : config.timeouts.collective;
  std::shared_ptr<VoteExchange> votes;
  if (shares) {
    votes = make_two_level_vote_exchange(host_context, transport, topology, between_hosts);
    plane.backends.push_back(
        make_two_level_backend(host_context, transport, topology, votes, timeout, choice, instruction_set));
  } else {
    votes = make_transport_vote_exchange(transport, between_hosts);
  }
  plane.backends.push_back(make_transport_backend(links.name, transport, timeout, choice, instruction_set, votes));
  return plane;
}

DataPlane make(const BackendContext& context, const std::optional<LinkCosts>& given_costs) {
  const auto mpi = join_mpi_communicator(context);
  DataPlane plane = make_own(context, mpi, given_costs);
  if (mpi && context.config.data_plane.cpu_backend == CpuBackend::mpi) add_plugin_backend(plane, mpi, context);
  add_named_plugins(plane, context);
  return plane;
}

// A backend through which all ranks can exchange small values.
Backend& cpu_backend_for_all_ranks(const DataPlane& plane, const Topology& topology) {
  const ProcessSet everyone{.ranks = all_ranks(topology.size)};
  CollectiveCall barrier;
  barrier.collective = Collective::barrier;
  barrier.set = &everyone;
  return select_backend(plane.backends, barrier);
}

// Adds NCCL, which is loaded with the first GPU tensor.
DataPlane with_gpus(DataPlane plane, const BackendContext& context) {
  auto devices = std::make_shared<cuda::CudaDevices>(context.config.gpu.cuda_library);
  plane.devices = devices;
  cuda::ThroughHostMemory detour;
  if (context.config.gpu.through_host) {
    // Moving the plane keeps the backends' addresses.
    const auto choose = [backends = backends_of(plane)](const CollectiveCall& call) -> Backend& {
      return select_backend(backends, call);
    };
    detour = cuda::make_through_host(devices, choose, context.config.timeouts.collective, context.abort);
  }
  plane.backends.push_back(make_nccl_backend({.topology = context.topology,
                                              .config = context.config,
                                              .abort = context.abort,
                                              .log = context.log,
                                              .devices = std::move(devices),
                                              .cpu_backend = cpu_backend_for_all_ranks(plane, context.topology),
                                              .through_host = std::move(detour)}));
  return plane;
}

}  // namespace

DataPlane make_data_plane(const BackendContext& context) { return with_gpus(make(context, std::nullopt), context); }

std::unique_ptr<Channel> make_channel(const BackendContext& context) { return make_socket_channel(context); }

DataPlaneFactory data_plane_with(const LinkCosts& costs) {
  return [costs](const BackendContext& context) { return with_gpus(make(context, costs), context); };
}

std::string describe_gpu_libraries(const Config::Gpu& gpu) {
  const auto line = [](const char* what, const auto& describe) {
    try {
      return std::string(what) + ": ok: " + describe() + "\n";
    } catch (const Error& error) {
      return std::string(what) + ": missing: " + error.what() + "\n";
    }
  };
  return line("CUDA driver", [&] { return cuda::Driver(gpu.cuda_library).describe(); }) +
         line("NCCL", [&] { return nccl::Library(gpu.nccl_library).describe(); });
}

Rendezvous launcher_rendezvous(const Launch& launch, const Config& config) {
  return mpi_rendezvous(launch, config.data_plane.mpi_library);
}

}  // namespace hvd
