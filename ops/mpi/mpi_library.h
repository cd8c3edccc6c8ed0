// Selects the MPI that this process has loaded or would load, opens the plugin for its binary interface, and starts a
// job through it.
//
// Its functions determine which of the three binary interfaces it has. libmpi is opened first; the plugin, which is
// linked with no MPI, finds its functions there, so that any library with that interface works, at any path.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/bootstrap/launch_environment.h"
#include "core/bootstrap/rendezvous.h"
#include "ops/plugin/plugin.h"

namespace hvd {

// The binary interface of a library that dlopen() has opened.
MpiKind mpi_kind_of(void* library);

// The libraries to try, in order: only the requested one, if any; otherwise those already loaded; otherwise those of
// the kind, or all; of these first the ones in the folder `beside`, where an MPI package of the same environment
// installs them. Pure.
std::vector<std::string> mpi_candidates(const std::string& wanted, const std::vector<std::string>& loaded,
                                        std::optional<MpiKind> kind, const std::string& beside);

// Opens MPI and its plugin, once per process; later calls return the same. `wanted`: HVD_MPI_LIB, may be empty. Throws
// Unsupported with the reason and advice, also if the launcher belongs to another MPI.
std::shared_ptr<const PluginLibrary> open_mpi(const std::string& wanted, const Launch& launch);

// Returns what open_mpi() has opened. Throws Unsupported if it was not called: MPI has not started this job.
std::shared_ptr<const PluginLibrary> mpi_of_this_job();

// The rendezvous of ranks that MPI's launcher has started, through MPI. `mpi_library`: HVD_MPI_LIB, may be empty. All
// ranks of the job call. Throws Unsupported with the reason if MPI cannot be used; Mismatch if its rank or size differs
// from the launcher's.
Rendezvous mpi_rendezvous(const Launch& launch, const std::string& mpi_library);

}  // namespace hvd
