// The types and constants of MPICH that hvd uses: those of libmpi.so.12, which MPICH since 3.1, Intel MPI, MVAPICH and
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

#define HVD_MPI_HANDLES(X)                     \
  X(Comm, MPI_COMM_NULL, 0x04000000)           \
  X(Comm, MPI_COMM_SELF, 0x44000001)           \
  X(Comm, MPI_COMM_WORLD, 0x44000000)          \
  X(Datatype, MPI_BYTE, 0x4c00010d)            \
  X(Datatype, MPI_DATATYPE_NULL, 0x0c000000)   \
  X(Datatype, MPI_DOUBLE, 0x4c00080b)          \
  X(Datatype, MPI_FLOAT, 0x4c00040a)           \
  X(Datatype, MPI_INT8_T, 0x4c000137)          \
  X(Datatype, MPI_INT16_T, 0x4c000238)         \
  X(Datatype, MPI_INT32_T, 0x4c000439)         \
  X(Datatype, MPI_INT64_T, 0x4c00083a)         \
  X(Datatype, MPI_UINT8_T, 0x4c00013b)         \
  X(Errhandler, MPI_ERRORS_RETURN, 0x54000001) \
  X(Group, MPI_GROUP_NULL, 0x08000000)         \
  X(Op, MPI_MAX, 0x58000001)                   \
  X(Op, MPI_MIN, 0x58000002)                   \
  X(Op, MPI_OP_NULL, 0x18000000)               \
  X(Op, MPI_PROD, 0x58000004)                  \
  X(Op, MPI_SUM, 0x58000003)                   \
  X(Request, MPI_REQUEST_NULL, 0x2c000000)

#define HVD_MPI_NUMBERS(X)                \
  X(MPI_SUCCESS, 0)                       \
  X(MPI_ANY_TAG, -1)                      \
  X(MPI_KEYVAL_INVALID, 0x24000000)       \
  X(MPI_TAG_UB, 0x64400001)               \
  X(MPI_MAX_ERROR_STRING, 512)            \
  X(MPI_MAX_LIBRARY_VERSION_STRING, 8192) \
  X(MPI_THREAD_SINGLE, 0)                 \
  X(MPI_THREAD_SERIALIZED, 2)             \
  X(MPI_THREAD_MULTIPLE, 3)

#define HVD_MPI_ADDRESSES(X) \
  X(void, MPI_IN_PLACE, -1)  \
  X(MPI_Status, MPI_STATUSES_IGNORE, 1)

}  // namespace hvd::mpi
