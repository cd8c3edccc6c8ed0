// The part of MPI that hvd calls, declared independently: hvd builds without MPI. Functions are the same in all binary
// interfaces, except for their types; the types are in mpi_types.h, one per interface, in separate folders: the sources
// of this folder are compiled once with each.
//
// Names are MPI's, in a namespace of hvd, so that they do not conflict with the vendors' headers:
// tests/ops/mpi/declarations_test.cc compares with those. Everything declared here is in a list that this test iterates
// over.
#pragma once

#include <cstdint>

#include "mpi_types.h"

namespace hvd::mpi {

// Constants: name, and the value in the interfaces of Open MPI, of MPICH, and of the standard; for a handle also its
// type, for an address what lies there. Handles of Open MPI are the addresses of objects that the library exports.
#define HVD_MPI_HANDLES(X)                                                    \
  X(Comm, MPI_COMM_NULL, ompi_mpi_comm_null, 0x04000000, 0x100)               \
  X(Comm, MPI_COMM_SELF, ompi_mpi_comm_self, 0x44000001, 0x102)               \
  X(Comm, MPI_COMM_WORLD, ompi_mpi_comm_world, 0x44000000, 0x101)             \
  X(Datatype, MPI_BYTE, ompi_mpi_byte, 0x4c00010d, 0x247)                     \
  X(Datatype, MPI_DATATYPE_NULL, ompi_mpi_datatype_null, 0x0c000000, 0x200)   \
  X(Datatype, MPI_DOUBLE, ompi_mpi_double, 0x4c00080b, 0x214)                 \
  X(Datatype, MPI_FLOAT, ompi_mpi_float, 0x4c00040a, 0x210)                   \
  X(Datatype, MPI_INT8_T, ompi_mpi_int8_t, 0x4c000137, 0x240)                 \
  X(Datatype, MPI_INT16_T, ompi_mpi_int16_t, 0x4c000238, 0x248)               \
  X(Datatype, MPI_INT32_T, ompi_mpi_int32_t, 0x4c000439, 0x250)               \
  X(Datatype, MPI_INT64_T, ompi_mpi_int64_t, 0x4c00083a, 0x258)               \
  X(Datatype, MPI_UINT8_T, ompi_mpi_uint8_t, 0x4c00013b, 0x241)               \
  X(Errhandler, MPI_ERRORS_RETURN, ompi_mpi_errors_return, 0x54000001, 0x143) \
  X(Group, MPI_GROUP_NULL, ompi_mpi_group_null, 0x08000000, 0x108)            \
  X(Op, MPI_MAX, ompi_mpi_op_max, 0x58000001, 0x23)                           \
  X(Op, MPI_MIN, ompi_mpi_op_min, 0x58000002, 0x22)                           \
  X(Op, MPI_OP_NULL, ompi_mpi_op_null, 0x18000000, 0x20)                      \
  X(Op, MPI_PROD, ompi_mpi_op_prod, 0x58000004, 0x24)                         \
  X(Op, MPI_SUM, ompi_mpi_op_sum, 0x58000003, 0x21)                           \
  X(Request, MPI_REQUEST_NULL, ompi_request_null, 0x2c000000, 0x180)
#define HVD_MPI_NUMBERS(X)                           \
  X(MPI_SUCCESS, 0, 0, 0)                            \
  X(MPI_ANY_TAG, -1, -1, -2)                         \
  X(MPI_KEYVAL_INVALID, -1, 0x24000000, 0)           \
  X(MPI_TAG_UB, 0, 0x64400001, 501)                  \
  X(MPI_MAX_ERROR_STRING, 256, 512, 512)             \
  X(MPI_MAX_LIBRARY_VERSION_STRING, 256, 8192, 8192) \
  X(MPI_THREAD_SINGLE, 0, 0, 0)                      \
  X(MPI_THREAD_SERIALIZED, 2, 2, 2048)               \
  X(MPI_THREAD_MULTIPLE, 3, 3, 4096)
#define HVD_MPI_ADDRESSES(X)      \
  X(void, MPI_IN_PLACE, 1, -1, 1) \
  X(MPI_Status, MPI_STATUSES_IGNORE, 0, 1, 0)

#define HVD_MPI_DECLARE_VALUE(type, name, value) HVD_MPI_DECLARE_HANDLE(type, name, value)
#define HVD_MPI_DECLARE(type, name, ...) HVD_MPI_DECLARE_VALUE(type, name, HVD_MPI_OF_INTERFACE(__VA_ARGS__))
HVD_MPI_HANDLES(HVD_MPI_DECLARE)
#undef HVD_MPI_DECLARE

#define HVD_MPI_DECLARE(name, ...) inline constexpr int name = HVD_MPI_OF_INTERFACE(__VA_ARGS__);
HVD_MPI_NUMBERS(HVD_MPI_DECLARE)
#undef HVD_MPI_DECLARE

// NOLINTBEGIN(bugprone-macro-parentheses, performance-no-int-to-ptr): types, and MPI's own addresses
#define HVD_MPI_DECLARE(type, name, ...) \
  inline type* const name = reinterpret_cast<type*>(std::intptr_t{HVD_MPI_OF_INTERFACE(__VA_ARGS__)});
HVD_MPI_ADDRESSES(HVD_MPI_DECLARE)
#undef HVD_MPI_DECLARE
// NOLINTEND(bugprone-macro-parentheses, performance-no-int-to-ptr)

using MPI_User_function = void(void* in, void* inout, int* count, MPI_Datatype*);
using MPI_Comm_copy_attr_function = int(MPI_Comm, int key, void* extra, void* value, void* copied, int* is_copied);
using MPI_Comm_delete_attr_function = int(MPI_Comm, int key, void* value, void* extra);

// Name and parameters; all return an error code.
#define HVD_MPI_FUNCTIONS(X)                                                                                       \
  X(MPI_Allgatherv, (const void* in, int count, MPI_Datatype, void* out, const int* counts, const int* offsets,    \
                     MPI_Datatype, MPI_Comm))                                                                      \
  X(MPI_Allreduce, (const void* in, void* out, int count, MPI_Datatype, MPI_Op, MPI_Comm))                         \
  X(MPI_Alltoallv, (const void* in, const int* in_counts, const int* in_offsets, MPI_Datatype, void* out,          \
                    const int* out_counts, const int* out_offsets, MPI_Datatype, MPI_Comm))                        \
  X(MPI_Bcast, (void* data, int count, MPI_Datatype, int root, MPI_Comm))                                          \
  X(MPI_Comm_create_group, (MPI_Comm, MPI_Group, int tag, MPI_Comm* made))                                         \
  X(MPI_Comm_create_keyval, (MPI_Comm_copy_attr_function*, MPI_Comm_delete_attr_function*, int* key, void* extra)) \
  X(MPI_Comm_free, (MPI_Comm*))                                                                                    \
  X(MPI_Comm_free_keyval, (int* key))                                                                              \
  X(MPI_Comm_get_attr, (MPI_Comm, int key, void* value, int* is_set))                                              \
  X(MPI_Comm_group, (MPI_Comm, MPI_Group*))                                                                        \
  X(MPI_Comm_rank, (MPI_Comm, int* rank))                                                                          \
  X(MPI_Comm_set_attr, (MPI_Comm, int key, void* value))                                                           \
  X(MPI_Comm_set_errhandler, (MPI_Comm, MPI_Errhandler))                                                           \
  X(MPI_Comm_size, (MPI_Comm, int* size))                                                                          \
  X(MPI_Error_string, (int code, char* text, int* length))                                                         \
  X(MPI_Finalize, ())                                                                                              \
  X(MPI_Finalized, (int* answer))                                                                                  \
  X(MPI_Get_count, (const MPI_Status*, MPI_Datatype, int* count))                                                  \
  X(MPI_Get_library_version, (char* text, int* length))                                                            \
  X(MPI_Get_version, (int* version, int* subversion))                                                              \
  X(MPI_Group_free, (MPI_Group*))                                                                                  \
  X(MPI_Group_incl, (MPI_Group, int count, const int* ranks, MPI_Group* made))                                     \
  X(MPI_Init_thread, (int* argc, char*** argv, int wanted, int* level))                                            \
  X(MPI_Initialized, (int* answer))                                                                                \
  X(MPI_Irecv, (void* data, int count, MPI_Datatype, int peer, int tag, MPI_Comm, MPI_Request*))                   \
  X(MPI_Isend, (const void* data, int count, MPI_Datatype, int peer, int tag, MPI_Comm, MPI_Request*))             \
  X(MPI_Op_create, (MPI_User_function*, int commutes, MPI_Op* made))                                               \
  X(MPI_Op_free, (MPI_Op*))                                                                                        \
  X(MPI_Query_thread, (int* level))                                                                                \
  X(MPI_Reduce, (const void* in, void* out, int count, MPI_Datatype, MPI_Op, int root, MPI_Comm))                  \
  X(MPI_Reduce_scatter, (const void* in, void* out, const int* counts, MPI_Datatype, MPI_Op, MPI_Comm))            \
  X(MPI_Test, (MPI_Request*, int* is_done, MPI_Status*))                                                           \
  X(MPI_Type_commit, (MPI_Datatype*))                                                                              \
  X(MPI_Type_contiguous, (int count, MPI_Datatype, MPI_Datatype* made))                                            \
  X(MPI_Type_free, (MPI_Datatype*))                                                                                \
  X(MPI_Waitall, (int count, MPI_Request*, MPI_Status*))

// The label is the symbol in MPI's library.
#define HVD_MPI_DECLARE(name, parameters) int name parameters __asm__(#name);
HVD_MPI_FUNCTIONS(HVD_MPI_DECLARE)
#undef HVD_MPI_DECLARE

}  // namespace hvd::mpi
