// Creates the data plane and the channel of a job. The only file that knows all backends.
#pragma once

#include "core/bootstrap/launch_environment.h"
#include "core/bootstrap/rendezvous.h"
#include "core/execution/backend.h"
#include "core/execution/channel.h"
#include "ops/choice/cost_model.h"

namespace hvd {

// Creates the backends of this job, in order of preference at equal score, and the arena of this host's ranks if they
// share memory. All ranks call together. A DataPlaneFactory.
//
//   all ranks on one host    shared memory alone
//   several hosts            TCP, or MPI's messages, between all ranks; and two levels for allreduce if a host has
//                            several ranks, though not for Adasum
//   HVD_SHARED_MEMORY=0      TCP, or MPI's messages, alone
//   HVD_CPU_BACKEND=mpi      MPI's collectives before these
//   HVD_PLUGINS              these before all others
//
// If ranks exchange messages, measures the links (ops/choice/cost_model.h). Throws InvalidArgument for an invalid
// HVD_ALGORITHM, on every rank and before any rank waits for another one.
DataPlane make_data_plane(const BackendContext& context);

// Like make_data_plane(), with given costs, equal on all ranks, so that the choice of algorithms is known in advance.
DataPlaneFactory data_plane_with(const LinkCosts& costs);

// Messages between two ranks. Costs nothing before the first message. A ChannelFactory; the store outlives the channel.
std::unique_ptr<Channel> make_channel(const BackendContext& context);

// Describes the libraries that GPU tensors need, by line: "CUDA driver: ok: ..." or "NCCL: missing: ...". Loads them.
std::string describe_gpu_libraries(const Config::Gpu& gpu);

// Rendezvous through the library of the launcher that started the ranks: MPI. All ranks of the job call. Throws
// Unsupported with the reason if MPI cannot be used; Mismatch if MPI's ranks differ from the launcher's.
Rendezvous launcher_rendezvous(const Launch& launch, const Config& config);

}  // namespace hvd
