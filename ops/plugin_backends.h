// What plugins add to a data plane: MPI's, if HVD_CPU_BACKEND lets it, and those that HVD_PLUGINS names.
#pragma once

#include <memory>

#include "core/execution/backend_context.h"
#include "ops/plugin/plugin_communicator.h"

namespace hvd {

// All ranks of the topology call these together. References in the context outlive what comes out.

// The ranks in MPI, for its collectives and its messages; null where it is not to be used: HVD_CPU_BACKEND=host, or
// auto and the job is on one host, not started by MPI, or a rank cannot use it, which the log tells. Throws
// Unsupported, on every rank, if HVD_CPU_BACKEND asks for MPI and a rank cannot use it.
std::shared_ptr<PluginCommunicator> join_mpi_group(const BackendContext& context);

// A group's backend in front of the plane's others, to which it may hand calls on.
void add_plugin_backend(DataPlane& plane, std::shared_ptr<PluginCommunicator> group, const BackendContext& context);

// Those of HVD_PLUGINS. One that a rank cannot open is left out on all, with a warning.
void add_named_plugins(DataPlane& plane, const BackendContext& context);

}  // namespace hvd
