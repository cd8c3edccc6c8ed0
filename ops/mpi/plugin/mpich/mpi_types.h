// The types of MPICH that hvd uses: those of libmpi.so.12, which MPICH since 3.1, Intel MPI, MVAPICH and
// Cray MPI have in common. A handle is an int.
#pragma once

#include <cstdint>

namespace hvd::mpi {

enum class MPI_Comm : int {};
enum class MPI_Datatype : int {};
enum class MPI_Errhandler : int {};
enum class MPI_Group : int {};
enum class MPI_Op : int {};
enum class MPI_Request : int {};

struct MPI_Status {
  int count_low;
  int count_high_and_cancelled;
  int MPI_SOURCE;
  int MPI_TAG;
  int MPI_ERROR;
};

#define HVD_MPI_OF_INTERFACE(openmpi, mpich, standard) mpich
#define HVD_MPI_DECLARE_HANDLE(type, name, number) inline constexpr MPI_##type name{number};

}  // namespace hvd::mpi
