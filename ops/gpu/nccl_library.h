// NCCL, loaded at run time: its functions, its errors as exceptions, and its communicators.
//
// The part of its binary interface that hvd calls is declared here, in the layout of version 2.18: newer versions
// recognise the older layout by its size and version, so one build serves all. Numbers are NCCL's and do not change.
#pragma once

#include <array>
#include <climits>
#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/abort_flag.h"
#include "core/base/clock.h"
#include "core/base/dynamic_library.h"
#include "ops/gpu/cuda_driver.h"

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

// One number of a type.
using Scalar = std::array<std::byte, 8>;

// NCCL's functions, by subject and symbol. Throws Unsupported if one is missing.
struct CollectiveFunctions {
  using Stream = cuda::Stream;
  const DynamicLibrary& from;
  Result (*allreduce)(const void*, void*, std::size_t, Type, Op, Handle, Stream) = from.require("ncclAllReduce");
  Result (*reduce)(const void*, void*, std::size_t, Type, Op, int root, Handle, Stream) = from.require("ncclReduce");
  Result (*reducescatter)(const void*, void*, std::size_t each, Type, Op, Handle,
                          Stream) = from.require("ncclReduceScatter");
  Result (*broadcast)(const void*, void*, std::size_t, Type, int root, Handle, Stream) = from.require("ncclBroadcast");
  Result (*allgather)(const void*, void*, std::size_t each, Type, Handle, Stream) = from.require("ncclAllGather");
  Result (*send)(const void*, std::size_t, Type, int peer, Handle, Stream) = from.require("ncclSend");
  Result (*receive)(void*, std::size_t, Type, int peer, Handle, Stream) = from.require("ncclRecv");
};
struct CommunicatorFunctions {
  const DynamicLibrary& from;
  Result (*init)(Handle* made, int size, UniqueId id, int rank, Config*) = from.require("ncclCommInitRankConfig");
  Result (*async_error)(Handle communicator, Result* state) = from.require("ncclCommGetAsyncError");
  Result (*finalize)(Handle communicator) = from.require("ncclCommFinalize");
  Result (*destroy)(Handle communicator) = from.require("ncclCommDestroy");
  Result (*abort)(Handle communicator) = from.require("ncclCommAbort");
  Result (*create_scaled_sum)(Op*, void* scale, Type, int residence, Handle) = from.require("ncclRedOpCreatePreMulSum");
  Result (*destroy_op)(Op op, Handle communicator) = from.require("ncclRedOpDestroy");
  // Null before 2.19.
  Result (*register_memory)(Handle, void* memory, std::size_t bytes,
                            void** registration) = from.find("ncclCommRegister");
  Result (*deregister)(Handle communicator, void* registration) = from.find("ncclCommDeregister");
};
struct Table {
  const DynamicLibrary& from;
  Result (*version)(int* version) = from.require("ncclGetVersion");
  Result (*unique_id)(UniqueId* id) = from.require("ncclGetUniqueId");
  const char* (*error_text)(Result result) = from.require("ncclGetErrorString");
  const char* (*last_error)(Handle communicator) = from.find("ncclGetLastError");
  Result (*group_start)() = from.require("ncclGroupStart");
  Result (*group_end)() = from.require("ncclGroupEnd");
  CommunicatorFunctions communicator{from};
  CollectiveFunctions collective{from};
};

// Any thread, except as NCCL forbids.
class Library {
 public:
  // `wanted`: a name or path; empty: the copy that is already in this process, loaded by a framework, otherwise
  // libnccl.so.2. Must be called after frameworks have been loaded: they would otherwise get our copy under the name of
  // theirs. Throws Unsupported with the reason.
  explicit Library(const std::string& wanted);

  const Table& call() const { return table_; }
  int version() const { return version_; }
  // Returns, for example, "NCCL 2.27.3, /usr/lib/libnccl.so.2".
  std::string describe() const;

  // Throws unless the result is a success or `in_progress`: PeerLost if NCCL reports another rank's failure, Internal
  // if it reports incorrect use by hvd, otherwise Aborted. `communicator` may be null.
  void check(Result result, const char* what, Handle communicator = nullptr) const;

 private:
  const DynamicLibrary library_;
  const Table table_{library_};
  int version_ = 0;
};

// "2.27.3"
std::string version_text(int version);

// An NCCL communicator of this rank's GPU, in non-blocking mode: no call of NCCL's waits for another rank, and waits
// poll it, with a deadline and the AbortFlag. (NCCL then starts each group of calls on another thread, which costs some
// tens of microseconds: the price of being able to abort.)
//
// Owned and used by one backend, on the thread that drives the engine; no other object calls NCCL for it. The device's
// context must be current in all functions.
class NcclCommunicator {
 public:
  // All ranks must construct it together, with rank 0's id; returns when all have. Throws Timeout, the AbortFlag's
  // reason, or the errors of Library::check.
  NcclCommunicator(std::shared_ptr<const Library> library, const UniqueId& id, int rank, int size,
                   const AbortFlag& abort_flag, Deadline deadline);
  ~NcclCommunicator() { abort(); }
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  Handle handle() const { return handle_; }
  const Library& library() const { return *library_; }
  const Table& call() const { return library_->call(); }

  // Throws if `result` is a failure; waits until the communicator has completed it. `what` names it in errors.
  void complete(Result result, const char* what, Deadline deadline) const;

  // The operation that multiplies each input by `scale`, a number of this type, and sums. Valid until the next call
  // with the same type and another number; repeated calls with the same number cost nothing.
  Op scaled_sum(Type type, const Scalar& scale, Deadline deadline);

  // Tells NCCL of device memory that many calls will use, so that it need not copy what it sends and receives there.
  // The memory must outlive the communicator. If a rank passes registered memory to a collective, all ranks must, at
  // the same offset. Nothing before NCCL 2.19; NCCL_LOCAL_REGISTER=0 turns it off.
  void register_memory(void* memory, std::size_t bytes, Deadline deadline);

  // Throws if an asynchronous operation has failed.
  void check() const;

  // Lets pending operations complete, and waits for the other ranks, which also leave. Returns false if that is
  // impossible or takes longer; then call abort(). The communicator is not used afterwards.
  bool close(Deadline deadline) noexcept;
  // Aborts pending operations at once, on this rank. The communicator is not used afterwards.
  void abort() noexcept;

 private:
  const std::shared_ptr<const Library> library_;
  struct ScaledSum {
    Op op;
    Scalar scale;
  };

  const AbortFlag& abort_;
  Handle handle_ = nullptr;                // null: ended
  std::map<Type, ScaledSum> scaled_sums_;  // the last one of each type; end with the communicator
  std::vector<void*> registrations_;
};

}  // namespace hvd::nccl
