// The backend for tensors on GPUs: NCCL, in stream order.
//
// run() enqueues a call in the backend's stream, which waits for the tensors' ready events before it and records an
// event after it, and returns; the thread that drives the engine continues, and callers, or their streams, wait for the
// event. Nothing else waits for the GPU. Meanwhile watch() monitors the operations in the stream: a failure, or an
// operation that takes longer than the job's collective timeout, ends the job as on the CPU, and the communicator is
// aborted, so that the GPU stops and no rank hangs.
//
// If the tensors' streams are being captured into a CUDA graph, so is the call: launched, the graph performs it without
// the engine. All ranks must capture it, and launch their graphs in the same order.
//
// NCCL is loaded at the first call, which all ranks reach at the same point of their common order. They then exchange
// what they have of it, through a CPU backend, and create a communicator: one per process set, each rank with the
// device of its first tensor. The same backend performs the exchange before a call of a locked schedule, because NCCL
// has no way to decline.
//
// A call that NCCL cannot perform is an error, or goes through host memory if that was requested. Owned by the
// executor; used on the thread that drives the engine.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/abort_flag.h"
#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/base/status.h"
#include "core/bootstrap/topology.h"
#include "core/config.h"
#include "core/execution/backend.h"
#include "ops/gpu/cuda_driver.h"
#include "ops/gpu/nccl_library.h"
#include "ops/gpu/through_host.h"

namespace hvd::nccl {

// The information that ranks exchange before they create a communicator: their version of NCCL, or why they have none.
// All must have the same version; otherwise NCCL would fail late, and report it on some ranks only. The transmitted
// form: texts are zero-terminated, and truncated to fit.
struct NcclRankInfo {
  std::int32_t version = 0;  // 0: there is none
  UniqueId id{};             // rank 0's, for the communicator
  std::int32_t kernels = 0;  // 1: the rank can pack and scale
  char text[504]{};          // the library's description, or what is missing

  void set_text(const std::string& what);
  std::string text_string() const;
};

// Exchanges the ranks' information through `cpu_backend`, as part of `about`: the ranks of its set call together.
// Returns them by rank. Throws the backend's errors.
std::vector<NcclRankInfo> exchange_rank_info(Backend& cpu_backend, const CollectiveCall& about,
                                             const NcclRankInfo& own);

// Returns ok if a communicator can be created; otherwise Unsupported or Mismatch, the same on every rank. Pure.
Status check_compatible(const std::vector<NcclRankInfo>& ranks, const std::function<std::string(int)>& describe_rank);

// Detects whether the device has been busy with one operation for too long. Pure: time is an argument.
//
// A stream performs one operation after the other, and waits for inputs before each, for a time that the program
// determines. Therefore only the oldest operation counts, from when it was observed to have begun.
class Watchdog {
 public:
  explicit Watchdog(Duration limit);

  // `oldest`: the number of the oldest pending operation; `begun`: whether its inputs are ready, and all earlier
  // operations have ended. Returns true if it has been running for the limit.
  bool expired(TimePoint now, std::uint64_t oldest, bool begun);

 private:
  const Duration limit_;
  std::uint64_t oldest_ = 0;
  std::optional<TimePoint> since_;
};

}  // namespace hvd::nccl

namespace hvd {

struct NcclParts {  // references outlive the backend, except `cpu_backend`, which the destructor does not use
  const Topology& topology;
  const Config& config;
  AbortFlag& abort;
  const Log& log;
  std::shared_ptr<cuda::CudaDevices> devices;
  Backend& cpu_backend;                  // serves the same ranks
  cuda::ThroughHostMemory through_host;  // for calls that NCCL cannot perform; null: such calls are errors
};

std::unique_ptr<Backend> make_nccl_backend(NcclParts parts);

}  // namespace hvd
