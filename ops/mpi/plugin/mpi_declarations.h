// The part of MPI that hvd calls, declared independently: hvd builds without MPI. Functions are the same in all binary
// interfaces, except for their types; types and constants are in mpi_types.h, one per interface, in separate folders:
// the sources of this folder are compiled once with each.
//
// Names are MPI's, in a namespace of hvd, so that they do not conflict with the vendors' headers:
// tests/ops/mpi/declarations_test.cc compares with those. Everything declared here is in a list that this test iterates
// over.
#pragma once

#include <cstdint>

#include "mpi_types.h"

namespace hvd::mpi {

#ifdef HVD_MPI_HANDLES  // of Open MPI's, which are not numbers, mpi_types.h takes care
#define HVD_MPI_DECLARE(type, name, number) inline constexpr MPI_##type name{number};
HVD_MPI_HANDLES(HVD_MPI_DECLARE)
#undef HVD_MPI_DECLARE
#endif

#define HVD_MPI_DECLARE(name, number) inline constexpr int name = number;
HVD_MPI_NUMBERS(HVD_MPI_DECLARE)
#undef HVD_MPI_DECLARE

// NOLINTBEGIN(bugprone-macro-parentheses, performance-no-int-to-ptr): types, and MPI's own addresses
#define HVD_MPI_DECLARE(type, name, number) inline type* const name = reinterpret_cast<type*>(std::intptr_t{number});
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
