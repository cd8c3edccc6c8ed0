#include "ops/mpi/mpi_library.h"

#include <dlfcn.h>
#include <link.h>

#include <filesystem>
#include <string_view>

#include "core/base/error.h"
#include "core/base/mutex.h"

namespace hvd {

namespace {

// A kind of MPI: its name, and the plugin for its binary interface.
struct Kind {
  const char* name;
  const char* plugin;
};

const Kind& facts_of(MpiKind kind) {
  static constexpr Kind kKinds[] = {{"Open MPI", "libhvd_mpi_openmpi.so"},
                                    {"MPICH", "libhvd_mpi_mpich.so"},
                                    {"MPI with the standard's interface", "libhvd_mpi_standard.so"}};
  return kKinds[static_cast<std::size_t>(kind)];
}

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

// Detects the standard's interface by the function that returns its version: MPICH 5 has that in both of its libraries,
// and reports in the one with its own interface that there is none. May be called before MPI is initialised.
bool has_standard_interface(void* library) {
  using GetVersion = int (*)(int* major, int* minor);
  const auto get = reinterpret_cast<GetVersion>(dlsym(library, "MPI_Abi_get_version"));
  int major = 0, minor = 0;
  return get != nullptr && get(&major, &minor) == 0 && major > 0;
}

struct Opened {
  void* library = nullptr;
  std::string path;
};

// Opens the first candidate that exists, and makes its functions visible to libraries opened later.
Opened open_first(const std::vector<std::string>& candidates) {
  std::string tried;
  for (const std::string& path : candidates) {
    if (void* const library = dlopen(path.c_str(), RTLD_LAZY | RTLD_GLOBAL)) return {library, path};
    tried += std::string(tried.empty() ? "" : "; ") + dlerror();
  }
  throw Unsupported("no MPI library was found (" + tried +
                    "): install Open MPI or MPICH, or set HVD_MPI_LIB to the path of libmpi.so");
}

const char* launcher_of(MpiKind kind, bool by_slurm) {
  const bool is_mpich = kind == MpiKind::mpich;
  if (by_slurm) return is_mpich ? "srun --mpi=pmi2" : "srun --mpi=pmix";
  return is_mpich ? "MPICH's mpiexec" : "Open MPI's mpirun";
}

void check_launcher(MpiKind kind, const Launch& launch, const std::string& path) {
  if (!launch.mpi || *launch.mpi == kind || kind == MpiKind::standard) return;
  const bool by_slurm = launch.launcher == Launcher::slurm;
  throw Unsupported("the job was started by " + std::string(launcher_name(launch.launcher)) +
                    (by_slurm ? std::string(" with what ") + facts_of(*launch.mpi).name + " needs" : "") +
                    ", but the MPI library " + path + " is " + facts_of(kind).name +
                    ", in which every process would be alone: start the job with " + launcher_of(kind, by_slurm) +
                    ", or set HVD_MPI_LIB to the launcher's own libmpi.so");
}

// The MPI library of this process, which can have only one. Never destroyed.
struct ProcessMpi {
  Mutex mutex;
  std::shared_ptr<const PluginLibrary> opened GUARDED_BY(mutex);
};

ProcessMpi& process_mpi() {
  static auto* const mpi = new ProcessMpi();
  return *mpi;
}

// The candidates without missing files of hvd's own folder, which an error need not list.
std::vector<std::string> candidates_here(const std::string& wanted, const Launch& launch) {
  const std::string folder = std::filesystem::path(installed_plugin_folder()).parent_path().string();
  auto candidates = mpi_candidates(wanted, loaded_libraries(), launch.mpi, folder);
  std::erase_if(candidates, [&](const std::string& path) {
    std::error_code failed;
    return wanted.empty() && path.starts_with(folder + "/") && !std::filesystem::exists(path, failed);
  });
  return candidates;
}

std::shared_ptr<const PluginLibrary> open_now(const std::string& wanted, const Launch& launch) {
  const Opened mpi = open_first(candidates_here(wanted, launch));
  const MpiKind kind = mpi_kind_of(mpi.library);
  check_launcher(kind, launch, mpi.path);
  try {
    return std::make_shared<const PluginLibrary>(installed_plugin_folder() + "/" + facts_of(kind).plugin);
  } catch (const Unsupported& error) {
    throw Unsupported(mpi.path + " is " + facts_of(kind).name + ", which hvd cannot use: " + error.what());
  }
}

}  // namespace

MpiKind mpi_kind_of(void* library) {
  if (has_standard_interface(library)) return MpiKind::standard;
  return dlsym(library, "ompi_mpi_comm_world") != nullptr ? MpiKind::open_mpi : MpiKind::mpich;
}

std::vector<std::string> mpi_candidates(const std::string& wanted, const std::vector<std::string>& loaded,
                                        std::optional<MpiKind> kind, const std::string& beside) {
  if (!wanted.empty()) return {wanted};
  if (!loaded.empty()) return loaded;
  const std::vector<std::string> open_mpi = {"libmpi.so.40", "libmpi.so.80", "libmpi.so.20"};
  const std::vector<std::string> mpich = {"libmpich.so.12", "libmpi.so.12"};
  std::vector<std::string> candidates = kind == MpiKind::mpich ? mpich : open_mpi;
  if (!kind) candidates.insert(candidates.end(), mpich.begin(), mpich.end());
  candidates.insert(candidates.end(), {"libmpi_abi.so.1", "libmpi_abi.so.0"});
  std::vector<std::string> all;
  for (const std::string& name : candidates) all.push_back(beside + "/" + name);
  all.insert(all.end(), candidates.begin(), candidates.end());
  return all;
}

std::shared_ptr<const PluginLibrary> open_mpi(const std::string& wanted, const Launch& launch) {
  ProcessMpi& mpi = process_mpi();
  const MutexLock lock(mpi.mutex);
  if (!mpi.opened) mpi.opened = open_now(wanted, launch);
  return mpi.opened;
}

std::shared_ptr<const PluginLibrary> mpi_of_this_job() {
  ProcessMpi& mpi = process_mpi();
  const MutexLock lock(mpi.mutex);
  if (!mpi.opened) throw Unsupported("MPI has not started this job: start it with MPI's launcher");
  return mpi.opened;
}

Rendezvous mpi_rendezvous(const Launch& launch, const std::string& mpi_library) {
  const auto library = open_mpi(mpi_library, launch);
  const hvd_plugin_launch& mpi = *library->table().launch;
  std::int32_t rank = 0, size = 0;
  library->check(mpi.join(&rank, &size));
  if (rank != launch.rank || size != launch.size) {
    throw Mismatch(std::string(launcher_name(launch.launcher)) + " has started this process as rank " +
                   std::to_string(launch.rank) + " of " + std::to_string(launch.size) + ", but in " +
                   library->description() + " it is rank " + std::to_string(rank) + " of " + std::to_string(size) +
                   ": the launcher and the library belong to different installations of MPI (HVD_MPI_LIB chooses "
                   "another library)");
  }
  return {
      .rank = rank, .size = size, .local_size = launch.local_size, .broadcast = [library](std::span<std::byte> bytes) {
        library->check(library->table().launch->broadcast(bytes.data(), bytes.size()));
      }};
}

}  // namespace hvd
