// Adds the backends of plugins to a data plane: MPI, if HVD_CPU_BACKEND permits it, and those that HVD_PLUGINS names.
#pragma once

#include <memory>

#include "core/execution/backend.h"
#include "ops/plugin/plugin_communicator.h"

namespace hvd {

// All ranks of the topology call these functions together. References in the context outlive the results.

// Returns the ranks' communicator in MPI, for its collectives and its messages; null if MPI is not to be used:
// HVD_CPU_BACKEND=host, or auto and the job is on one host, has one rank, was not started by MPI, or a rank cannot use
// it, which is logged. Throws Unsupported, on every rank, if HVD_CPU_BACKEND requires MPI and a rank cannot use it.
std::shared_ptr<PluginCommunicator> join_mpi_group(const BackendContext& context);

// Adds the group's backend; it may pass calls on to the backends that are already in the plane.
void add_plugin_backend(DataPlane& plane, std::shared_ptr<PluginCommunicator> group, const BackendContext& context);

// Adds the plugins of HVD_PLUGINS. A plugin that some rank cannot open is omitted on all ranks, with a warning.
void add_named_plugins(DataPlane& plane, const BackendContext& context);

}  // namespace hvd
