// The types that hvd uses of the binary interface in the MPI 5.0 standard (chapter 20): those of
// libmpi_abi.so, of any MPI. A handle is as wide as a pointer.
#pragma once

#include <cstdint>

namespace hvd::mpi {

enum class MPI_Comm : std::uintptr_t {};
enum class MPI_Datatype : std::uintptr_t {};
enum class MPI_Errhandler : std::uintptr_t {};
enum class MPI_Group : std::uintptr_t {};
enum class MPI_Op : std::uintptr_t {};
enum class MPI_Request : std::uintptr_t {};

struct MPI_Status {
  int MPI_SOURCE;
  int MPI_TAG;
  int MPI_ERROR;
  int reserved[5];
};

#define HVD_MPI_OF_INTERFACE(openmpi, mpich, standard) standard
#define HVD_MPI_DECLARE_HANDLE(type, name, number) inline constexpr MPI_##type name{number};

}  // namespace hvd::mpi
