// Which MPI this process has or would load, and the plugin that was compiled for its binary interface.
//
// Which of the three binary interfaces it has is found out from its functions. libmpi is opened first, so that the
// plugin, which is linked with none, finds its functions there: so any library of the kind does, wherever it lies.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/rendezvous/launch_environment.h"
#include "ops/plugin/plugin_library.h"

namespace hvd {

// For people: "Open MPI".
const char* mpi_kind_name(MpiKind kind);
// The plugin's file name.
const char* mpi_plugin_file(MpiKind kind);

// The binary interface of a library that dlopen() has opened.
MpiKind mpi_kind_of(void* library);

// What to open, best first: the library that was asked for, and no other; else one that is loaded already, else those
// of the kind, else all; of these first what lies in the folder `beside`, which is where a package of MPI's in the same
// environment has put it. Pure.
std::vector<std::string> mpi_candidates(const std::string& wanted, const std::vector<std::string>& loaded,
                                        std::optional<MpiKind> kind, const std::string& beside);

// Opens MPI and its plugin, once for the process; later calls give the same. `wanted`: HVD_MPI_LIB, may be empty.
// Throws Unsupported that says what is missing and what to do, or that the launcher is of another MPI.
std::shared_ptr<const PluginLibrary> open_mpi(const std::string& wanted, const Launch& launch);

// What open_mpi() has opened. Throws Unsupported if nobody has called it: MPI has not started this job.
std::shared_ptr<const PluginLibrary> mpi_of_this_job();

}  // namespace hvd
