// Ranks that MPI's launcher has started find each other through MPI.
#pragma once

#include "core/rendezvous/launch_environment.h"
#include "core/rendezvous/rendezvous.h"

namespace hvd {

// `mpi_library`: HVD_MPI_LIB, may be empty. All ranks of the job call. Throws Unsupported if MPI cannot be used, which
// says why; Mismatch if it knows of other ranks than the launcher has promised.
Rendezvous mpi_rendezvous(const Launch& launch, const std::string& mpi_library);

}  // namespace hvd
