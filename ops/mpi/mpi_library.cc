#include "ops/mpi/mpi_library.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <mutex>
#include <optional>
#include <string_view>

#include "core/base/error.h"

namespace hvd {

namespace {

bool is_libmpi(std::string_view path) {
  const std::string_view file = path.substr(path.rfind('/') + 1);
  return file.starts_with("libmpi.so") || file.starts_with("libmpich.so") || file.starts_with("libmpi_abi.so");
}

std::vector<std::string> loaded_libraries() {
  std::vector<std::string> paths;
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* found) {
        if (is_libmpi(info->dlpi_name)) static_cast<std::vector<std::string>*>(found)->emplace_back(info->dlpi_name);
        return 0;
      },
      &paths);
  return paths;
}

// By what only they have. Source of the order: mpi4py, src/mpi4py/_mpiabi.py, which tells them apart the same way.
MpiKind kind_of(void* library) {
  if (dlsym(library, "MPI_Abi_get_version") != nullptr && dlsym(library, "ompi_mpi_comm_world") == nullptr &&
      dlsym(library, "MPIR_Err_return_comm") == nullptr) {
    return MpiKind::standard;
  }
  return dlsym(library, "ompi_mpi_comm_world") != nullptr ? MpiKind::open_mpi : MpiKind::mpich;
}

std::optional<MpiKind> kind_of_launcher(Launcher launcher) {
  if (launcher == Launcher::open_mpi) return MpiKind::open_mpi;
  if (launcher == Launcher::mpich) return MpiKind::mpich;
  return std::nullopt;
}

struct Opened {
  void* library = nullptr;
  std::string path;
};

// Its functions are then found by what is opened later.
Opened open_first(const std::vector<std::string>& candidates) {
  std::string tried;
  for (const std::string& path : candidates) {
    if (void* const library = dlopen(path.c_str(), RTLD_LAZY | RTLD_GLOBAL)) return {library, path};
    tried += std::string(tried.empty() ? "" : "; ") + dlerror();
  }
  throw Unsupported("no MPI library was found (" + tried +
                    "): install Open MPI or MPICH, or set HVD_MPI_LIB to the path of libmpi.so");
}

void check_launcher(MpiKind kind, Launcher launcher, const std::string& path) {
  const auto expected = kind_of_launcher(launcher);
  if (!expected || *expected == kind || kind == MpiKind::standard) return;
  throw Unsupported("the job was started by " + std::string(launcher_name(launcher)) + ", but the MPI library " + path +
                    " is " + mpi_kind_name(kind) + ", in which every process would be alone: start the job with " +
                    (kind == MpiKind::mpich ? "MPICH's mpiexec" : "Open MPI's mpirun") +
                    ", or set HVD_MPI_LIB to the launcher's own libmpi.so");
}

// MPI is one for the process, whoever asks, and so is this. Never destroyed.
struct ProcessMpi {
  std::mutex mutex;
  std::shared_ptr<const PluginLibrary> opened;  // guarded by mutex
};

ProcessMpi& process_mpi() {
  static auto* const mpi = new ProcessMpi();
  return *mpi;
}

std::shared_ptr<const PluginLibrary> open_now(const std::string& wanted, Launcher launcher) {
  const Opened mpi = open_first(mpi_candidates(wanted, loaded_libraries(), launcher));
  const MpiKind kind = kind_of(mpi.library);
  check_launcher(kind, launcher, mpi.path);
  try {
    return std::make_shared<const PluginLibrary>(own_plugin_folder() + "/" + mpi_plugin_file(kind));
  } catch (const Unsupported& error) {
    throw Unsupported(mpi.path + " is " + mpi_kind_name(kind) + ", for which this installation of hvd has no plugin (" +
                      error.what() + "): install hvd where the headers of " + mpi_kind_name(kind) + " are");
  }
}

}  // namespace

const char* mpi_kind_name(MpiKind kind) {
  switch (kind) {
    case MpiKind::open_mpi: return "Open MPI";
    case MpiKind::mpich: return "MPICH";
    case MpiKind::standard: return "MPI with the standard's interface";
  }
  return "?";
}

const char* mpi_plugin_file(MpiKind kind) {
  switch (kind) {
    case MpiKind::open_mpi: return "libhvd_mpi_openmpi.so";
    case MpiKind::mpich: return "libhvd_mpi_mpich.so";
    case MpiKind::standard: return "libhvd_mpi_standard.so";
  }
  return "?";
}

std::vector<std::string> mpi_candidates(const std::string& wanted, const std::vector<std::string>& loaded,
                                        Launcher launcher) {
  if (!wanted.empty()) return {wanted};
  if (!loaded.empty()) return loaded;
  const std::vector<std::string> open_mpi = {"libmpi.so.40", "libmpi.so.80", "libmpi.so.20"};
  const std::vector<std::string> mpich = {"libmpich.so.12", "libmpi.so.12"};
  std::vector<std::string> candidates = launcher == Launcher::mpich ? mpich : open_mpi;
  if (launcher != Launcher::open_mpi && launcher != Launcher::mpich) {
    candidates.insert(candidates.end(), mpich.begin(), mpich.end());
  }
  candidates.insert(candidates.end(), {"libmpi_abi.so.1", "libmpi_abi.so.0"});
  return candidates;
}

std::shared_ptr<const PluginLibrary> open_mpi(const std::string& wanted, Launcher launcher) {
  ProcessMpi& mpi = process_mpi();
  const std::lock_guard lock(mpi.mutex);
  if (!mpi.opened) mpi.opened = open_now(wanted, launcher);
  return mpi.opened;
}

std::shared_ptr<const PluginLibrary> mpi_of_this_job() {
  ProcessMpi& mpi = process_mpi();
  const std::lock_guard lock(mpi.mutex);
  if (!mpi.opened) throw Unsupported("MPI has not started this job");
  return mpi.opened;
}

}  // namespace hvd
