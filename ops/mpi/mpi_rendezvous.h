// The rendezvous of ranks that MPI's launcher has started, through MPI.
#pragma once

#include "core/bootstrap/launch_environment.h"
#include "core/bootstrap/rendezvous.h"

namespace hvd {

// `mpi_library`: HVD_MPI_LIB, may be empty. All ranks of the job call. Throws Unsupported with the reason if MPI cannot
// be used; Mismatch if its rank or size differs from the launcher's.
Rendezvous mpi_rendezvous(const Launch& launch, const std::string& mpi_library);

}  // namespace hvd
