// The types and constants that hvd uses of the binary interface in the MPI 5.0 standard (chapter 20): those of
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

#define HVD_MPI_HANDLES(X)                \
  X(Comm, MPI_COMM_NULL, 0x100)           \
  X(Comm, MPI_COMM_SELF, 0x102)           \
  X(Comm, MPI_COMM_WORLD, 0x101)          \
  X(Datatype, MPI_BYTE, 0x247)            \
  X(Datatype, MPI_DATATYPE_NULL, 0x200)   \
  X(Datatype, MPI_DOUBLE, 0x214)          \
  X(Datatype, MPI_FLOAT, 0x210)           \
  X(Datatype, MPI_INT8_T, 0x240)          \
  X(Datatype, MPI_INT16_T, 0x248)         \
  X(Datatype, MPI_INT32_T, 0x250)         \
  X(Datatype, MPI_INT64_T, 0x258)         \
  X(Datatype, MPI_UINT8_T, 0x241)         \
  X(Errhandler, MPI_ERRORS_RETURN, 0x143) \
  X(Group, MPI_GROUP_NULL, 0x108)         \
  X(Op, MPI_MAX, 0x23)                    \
  X(Op, MPI_MIN, 0x22)                    \
  X(Op, MPI_OP_NULL, 0x20)                \
  X(Op, MPI_PROD, 0x24)                   \
  X(Op, MPI_SUM, 0x21)                    \
  X(Request, MPI_REQUEST_NULL, 0x180)

#define HVD_MPI_NUMBERS(X)                \
  X(MPI_SUCCESS, 0)                       \
  X(MPI_ANY_TAG, -2)                      \
  X(MPI_KEYVAL_INVALID, 0)                \
  X(MPI_TAG_UB, 501)                      \
  X(MPI_MAX_ERROR_STRING, 512)            \
  X(MPI_MAX_LIBRARY_VERSION_STRING, 8192) \
  X(MPI_THREAD_SINGLE, 0)                 \
  X(MPI_THREAD_SERIALIZED, 2048)          \
  X(MPI_THREAD_MULTIPLE, 4096)

#define HVD_MPI_ADDRESSES(X) \
  X(void, MPI_IN_PLACE, 1)   \
  X(MPI_Status, MPI_STATUSES_IGNORE, 0)

}  // namespace hvd::mpi
