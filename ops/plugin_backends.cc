#include "ops/plugin_backends.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/futex.h"
#include "core/bootstrap/rendezvous.h"
#include "ops/mpi/mpi_library.h"
#include "ops/plugin/plugin_backend.h"

namespace hvd {

namespace {

using OpenPlugin = std::function<std::shared_ptr<const PluginLibrary>()>;

// Returns the ranks' communicator in a plugin, or null and the objection; the same on all ranks.
std::shared_ptr<PluginCommunicator> open_on_all(const BackendContext& context, const std::string& key,
                                                const OpenPlugin& open, std::string& objection) {
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
  std::shared_ptr<PluginCommunicator> group;
  try {
    group = std::make_shared<PluginCommunicator>(library, context.topology, context.abort, context.log);
  } catch (const Error& error) {
    own = error.what();
  }
  return agree("/group") ? group : nullptr;
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

void say(const BackendContext& context, LogLevel level, const std::string& text) {
  if (context.topology.job_rank() == 0) context.log.write(level, text);
}

}  // namespace

std::shared_ptr<PluginCommunicator> join_mpi_group(const BackendContext& context) {
  const CpuBackend wanted = context.config.data_plane.cpu_backend;
  if (wanted == CpuBackend::host || context.topology.size == 1) return nullptr;
  const bool automatic = wanted == CpuBackend::automatic;
  const bool one_host = context.topology.hosts.size() == 1;
  if (one_host && (automatic || (wanted == CpuBackend::mpi_messages && context.config.data_plane.shared_memory)))
    return nullptr;
  std::string objection;
  auto group = open_on_all(
      context, "mpi",
      [&] {
        auto library = automatic ? mpi_of_this_job() : open_mpi(context.config.data_plane.mpi_library, Launch{});
        check_ranks(*library, context.topology);
        return library;
      },
      objection);
  if (group) return group;
  if (!automatic) throw Unsupported("HVD_CPU_BACKEND asks for MPI, which cannot be used on " + objection);
  say(context, LogLevel::info, "data does not go through MPI: " + objection);
  return nullptr;
}

void add_plugin_backend(DataPlane& plane, std::shared_ptr<PluginCommunicator> group, const BackendContext& context) {
  std::vector<Backend*> others;
  for (const auto& backend : plane.backends) others.push_back(backend.get());
  // A call is handed to another thread of this rank: if they share a CPU, the waiting thread must yield it at once.
  WaitPolicy policy = wait_policy_for(2 * context.topology.local_size, context.topology.local_cpus);
  policy.yields = 0;
  // Destroyed before the backends that it passes calls on to.
  plane.backends.push_back(std::make_unique<PluginBackend>(std::move(group), std::move(others), policy, context.abort,
                                                           context.config.timeouts.collective));
}

void add_named_plugins(DataPlane& plane, const BackendContext& context) {
  const std::vector<std::string> paths = plugin_paths(context.config.data_plane.plugins);
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const std::string& path = paths[i];
    std::string objection;
    auto group = open_on_all(
        context, "plugin/" + std::to_string(i), [&path] { return std::make_shared<const PluginLibrary>(path); },
        objection);
    if (group) {
      add_plugin_backend(plane, std::move(group), context);
    } else {
      say(context, LogLevel::warning, "going on without a plugin of HVD_PLUGINS: " + objection);
    }
  }
}

}  // namespace hvd
