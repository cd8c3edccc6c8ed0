// Which backends exist: the one file that knows, and the only place for #if HVD_WITH_*.
#pragma once

#include "core/execution/backend_context.h"
#include "core/execution/channel.h"
#include "core/rendezvous/launch_environment.h"
#include "core/rendezvous/rendezvous.h"
#include "ops/choice/cost_model.h"

namespace hvd {

// The backends of this job, best first among equals, and the arena of this host's ranks where they share memory. All
// ranks call together; a DataPlaneFactory.
//
//   all ranks on one host    shared memory alone
//   several hosts            TCP, or MPI's messages, between all ranks; and two levels for allreduce if a host has
//                            several ranks, though not for Adasum
//   HVD_SHARED_MEMORY=0      TCP, or MPI's messages, alone
//   HVD_CPU_BACKEND=mpi      MPI's collectives before these
//   HVD_PLUGINS              these before all others
//
// Where there are messages the links are measured (ops/choice/link_probe.h). Throws InvalidArgument for an
// HVD_ALGORITHM that makes no sense, on every rank and before any rank waits for another one.
DataPlane make_data_plane(const BackendContext& context);

// The same with costs that are given, equal on all ranks: what they choose is known beforehand.
DataPlaneFactory data_plane_with(const LinkCosts& costs);

// Messages between two ranks. Costs nothing before the first one. A ChannelFactory; the store outlives the channel.
std::unique_ptr<Channel> make_channel(const BackendContext& context);

// What GPU tensors would need, a line each: "CUDA driver: ok: ..." or "NCCL: missing: ...". Opens it.
std::string describe_gpu_libraries(const Config& config);

// For ranks that were started by a library's own launcher, which only that library knows: MPI. All ranks of the job
// call. Throws Unsupported if it cannot be used, which says why; Mismatch if it knows of other ranks.
Rendezvous launcher_rendezvous(const Launch& launch, const Config& config);

}  // namespace hvd
