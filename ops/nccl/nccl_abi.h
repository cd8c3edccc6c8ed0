// The part of NCCL's binary interface that hvd calls, declared here, in the layout of version 2.18: newer versions
// recognise the older layout by its size and version, so one build serves all. Numbers are NCCL's and do not change.
#pragma once

#include <climits>
#include <cstddef>

#include "ops/cuda/driver_abi.h"

namespace hvd::nccl {

enum class Result : int {
  success = 0,
  unhandled_cuda_error = 1,
  system_error = 2,
  internal_error = 3,
  invalid_argument = 4,
  invalid_usage = 5,
  remote_error = 6,
  in_progress = 7,
};

enum class Type : int {
  int8 = 0,
  uint8 = 1,
  int32 = 2,
  int64 = 4,
  float16 = 6,
  float32 = 7,
  float64 = 8,
  bfloat16 = 9,
};

// create_scaled_sum returns numbers beyond these.
enum class Op : int { sum = 0, product = 1, max = 2, min = 3, average = 4 };

using Handle = struct OpaqueCommunicator*;

struct UniqueId {
  char bytes[128];
};

inline constexpr int kOldestVersion = 21800;  // 2.18.0; since 2.9 two digits each for minor and patch

struct Config {
  std::size_t size = sizeof(Config);
  unsigned magic = 0xcafebeef;
  unsigned version = kOldestVersion;
  int blocking = 0;
  int cga_cluster_size = INT_MIN;  // INT_MIN: NCCL's choice
  int min_ctas = INT_MIN;
  int max_ctas = INT_MIN;
  const char* net_name = nullptr;
  int split_share = INT_MIN;
};

inline constexpr int kScalarOnHost = 1;  // read before create_scaled_sum returns

// NCCL's functions, by symbol.
struct Table {
  using Stream = cuda::Stream;

  Result (*version)(int* version);                                                          // ncclGetVersion
  Result (*unique_id)(UniqueId* id);                                                        // ncclGetUniqueId
  const char* (*error_text)(Result result);                                                 // ncclGetErrorString
  const char* (*last_error)(Handle communicator);                                           // ncclGetLastError
  Result (*init)(Handle* made, int size, UniqueId id, int rank, Config*);                   // ncclCommInitRankConfig
  Result (*async_error)(Handle communicator, Result* state);                                // ncclCommGetAsyncError
  Result (*finalize)(Handle communicator);                                                  // ncclCommFinalize
  Result (*destroy)(Handle communicator);                                                   // ncclCommDestroy
  Result (*abort)(Handle communicator);                                                     // ncclCommAbort
  Result (*create_scaled_sum)(Op*, void* scale, Type, int residence, Handle);               // ncclRedOpCreatePreMulSum
  Result (*destroy_op)(Op op, Handle communicator);                                         // ncclRedOpDestroy
  Result (*group_start)();                                                                  // ncclGroupStart
  Result (*group_end)();                                                                    // ncclGroupEnd
  Result (*allreduce)(const void*, void*, std::size_t, Type, Op, Handle, Stream);           // ncclAllReduce
  Result (*reduce)(const void*, void*, std::size_t, Type, Op, int root, Handle, Stream);    // ncclReduce
  Result (*reducescatter)(const void*, void*, std::size_t each, Type, Op, Handle, Stream);  // ncclReduceScatter
  Result (*broadcast)(const void*, void*, std::size_t, Type, int root, Handle, Stream);     // ncclBroadcast
  Result (*allgather)(const void*, void*, std::size_t each, Type, Handle, Stream);          // ncclAllGather
  Result (*send)(const void*, std::size_t, Type, int peer, Handle, Stream);                 // ncclSend
  Result (*receive)(void*, std::size_t, Type, int peer, Handle, Stream);                    // ncclRecv
};

}  // namespace hvd::nccl
