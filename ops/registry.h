// Which backends exist: the one file that knows, and the only place for #if HVD_WITH_*.
#pragma once

#include "core/execution/backend_context.h"

namespace hvd {

// The backends of this job, best first among equals, and the arena of this host's ranks where they share memory. All
// ranks call together; a DataPlaneFactory.
//
//   all ranks on one host    shared memory alone
//   several hosts            TCP between all ranks; and two levels for allreduce if a host has several
//                            ranks, though not for Adasum
//   HVD_SHARED_MEMORY=0      TCP alone
DataPlane make_data_plane(const BackendContext& context);

}  // namespace hvd
