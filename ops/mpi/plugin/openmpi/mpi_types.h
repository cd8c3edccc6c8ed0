// The types of Open MPI that hvd uses: those of libmpi.so.40, which versions 2 to 5 have. A handle is an
// address; predefined ones are the addresses of objects that the library exports.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hvd::mpi {

using MPI_Comm = struct OpaqueComm*;
using MPI_Datatype = struct OpaqueDatatype*;
using MPI_Errhandler = struct OpaqueErrhandler*;
using MPI_Group = struct OpaqueGroup*;
using MPI_Op = struct OpaqueOp*;
using MPI_Request = struct OpaqueRequest*;

struct MPI_Status {
  int MPI_SOURCE;
  int MPI_TAG;
  int MPI_ERROR;
  int cancelled;
  std::size_t bytes;
};

#define HVD_MPI_OF_INTERFACE(openmpi, mpich, standard) openmpi
#define HVD_MPI_HANDLES_ARE_OBJECTS
// NOLINTBEGIN(bugprone-macro-parentheses): a name in a declaration
#define HVD_MPI_DECLARE_HANDLE(type, name, object)    \
  extern struct Opaque##type object __asm__(#object); \
  inline constexpr MPI_##type name = &object;
// NOLINTEND(bugprone-macro-parentheses)

}  // namespace hvd::mpi
