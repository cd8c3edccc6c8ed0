// The types and constants of Open MPI that hvd uses: those of libmpi.so.40, which versions 2 to 5 have. A handle is an
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

// Type, name, and the object whose address it is.
#define HVD_MPI_OBJECTS(X)                                 \
  X(Comm, MPI_COMM_NULL, ompi_mpi_comm_null)               \
  X(Comm, MPI_COMM_SELF, ompi_mpi_comm_self)               \
  X(Comm, MPI_COMM_WORLD, ompi_mpi_comm_world)             \
  X(Datatype, MPI_BYTE, ompi_mpi_byte)                     \
  X(Datatype, MPI_DATATYPE_NULL, ompi_mpi_datatype_null)   \
  X(Datatype, MPI_DOUBLE, ompi_mpi_double)                 \
  X(Datatype, MPI_FLOAT, ompi_mpi_float)                   \
  X(Datatype, MPI_INT8_T, ompi_mpi_int8_t)                 \
  X(Datatype, MPI_INT16_T, ompi_mpi_int16_t)               \
  X(Datatype, MPI_INT32_T, ompi_mpi_int32_t)               \
  X(Datatype, MPI_INT64_T, ompi_mpi_int64_t)               \
  X(Datatype, MPI_UINT8_T, ompi_mpi_uint8_t)               \
  X(Errhandler, MPI_ERRORS_RETURN, ompi_mpi_errors_return) \
  X(Group, MPI_GROUP_NULL, ompi_mpi_group_null)            \
  X(Op, MPI_MAX, ompi_mpi_op_max)                          \
  X(Op, MPI_MIN, ompi_mpi_op_min)                          \
  X(Op, MPI_OP_NULL, ompi_mpi_op_null)                     \
  X(Op, MPI_PROD, ompi_mpi_op_prod)                        \
  X(Op, MPI_SUM, ompi_mpi_op_sum)                          \
  X(Request, MPI_REQUEST_NULL, ompi_request_null)
// NOLINTBEGIN(bugprone-macro-parentheses): a name in a declaration
#define HVD_MPI_DECLARE(type, name, object)           \
  extern struct Opaque##type object __asm__(#object); \
  inline constexpr MPI_##type name = &object;
HVD_MPI_OBJECTS(HVD_MPI_DECLARE)
#undef HVD_MPI_DECLARE
// NOLINTEND(bugprone-macro-parentheses)

#define HVD_MPI_NUMBERS(X)               \
  X(MPI_SUCCESS, 0)                      \
  X(MPI_ANY_TAG, -1)                     \
  X(MPI_KEYVAL_INVALID, -1)              \
  X(MPI_TAG_UB, 0)                       \
  X(MPI_MAX_ERROR_STRING, 256)           \
  X(MPI_MAX_LIBRARY_VERSION_STRING, 256) \
  X(MPI_THREAD_SINGLE, 0)                \
  X(MPI_THREAD_SERIALIZED, 2)            \
  X(MPI_THREAD_MULTIPLE, 3)

#define HVD_MPI_ADDRESSES(X) \
  X(void, MPI_IN_PLACE, 1)   \
  X(MPI_Status, MPI_STATUSES_IGNORE, 0)

}  // namespace hvd::mpi
