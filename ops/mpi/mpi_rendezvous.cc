#include "ops/mpi/mpi_rendezvous.h"

#include "core/base/error.h"
#include "ops/mpi/mpi_library.h"

namespace hvd {

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
