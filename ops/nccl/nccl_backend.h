// The backend for tensors on GPUs: NCCL, in stream order.
//
// run() enqueues a call in the backend's stream, which waits for the tensors' ready events before it and records an
// event after it, and returns; the thread that drives the engine continues, and callers, or their streams, wait for the
// event. Nothing else waits for the GPU. Meanwhile watch() monitors the operations in the stream: a failure, or an
// operation that takes longer than the job's collective timeout, ends the job as on the CPU, and the communicator is
// aborted, so that the GPU stops and no rank hangs.
//
// NCCL is loaded at the first call, which all ranks reach at the same point of their common order. They then exchange
// introductions (introduction.h), through a CPU backend, and create a communicator: one per process set, each rank with
// the device of its first tensor. The same backend performs the exchange before a call of a locked schedule, because
// NCCL has no way to decline.
//
// A call that NCCL cannot perform is an error, or goes through host memory if that was requested. Owned by the
// executor; used on the thread that drives the engine.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "core/base/abort_flag.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/bootstrap/topology.h"
#include "core/config.h"
#include "core/execution/backend.h"
#include "ops/cuda/bucket_kernels.h"
#include "ops/cuda/cuda_devices.h"
#include "ops/cuda/through_host.h"
#include "ops/nccl/collectives.h"
#include "ops/nccl/introduction.h"
#include "ops/nccl/nccl_communicator.h"
#include "ops/nccl/watchdog.h"

namespace hvd {

class NcclBackend final : public Backend {
 public:
  struct Parts {  // references outlive the backend, except `host`, which the destructor does not use
    const Topology& topology;
    const Config& config;
    AbortFlag& abort;
    const Log& log;
    std::shared_ptr<cuda::CudaDevices> devices;
    Backend& host;                                    // for CPU tensors; serves the same ranks
    std::unique_ptr<cuda::ThroughHost> through_host;  // for calls that NCCL cannot perform; null: such calls are errors
  };

  explicit NcclBackend(Parts parts);
  ~NcclBackend() override;

  const char* name() const override { return "nccl"; }
  int score(const CollectiveCall& call) const override;
  void run(const CollectiveCall& call) override;
  bool can_be_asked(const ProcessSet& set) const override { return parts_.host.can_be_asked(set); }
  std::shared_ptr<DeviceCompletion> enqueued() const override { return enqueued_; }
  Deadline watch(TimePoint now) override;
  void give_up(const Status& reason) noexcept override;

 private:
  struct Running {
    std::uint64_t number;
    std::string text;
    std::shared_ptr<const DeviceEvent> begun;  // its inputs are ready, and all earlier operations have ended
    std::shared_ptr<DeviceCompletion> completion;
    nccl::RetainedMemory retained;
  };

  void meet(const CollectiveCall& call);
  nccl::Introduction introduce_this_rank(const CollectiveCall& call);
  void load_kernels();
  void make_stream();
  void enqueue(const CollectiveCall& call);
  void run_through_host(const CollectiveCall& call, const Error& why);
  void forget_over();

  Parts parts_;
  std::optional<Status> verdict_;  // empty: no introductions were exchanged yet
  std::shared_ptr<const nccl::Library> library_;
  std::shared_ptr<cuda::Driver> driver_;
  std::unique_ptr<nccl::NcclCommunicator> communicator_;
  int device_ = -1;
  std::unique_ptr<const cuda::BucketKernels> kernels_;  // null: not all ranks have them
  cuda::Stream stream_ = nullptr;
  nccl::DeviceScratch scratch_;
  std::deque<Running> running_;  // in the stream, in its order
  std::uint64_t calls_ = 0;
  nccl::Watchdog watchdog_;
  std::shared_ptr<DeviceCompletion> enqueued_;
  bool warned_ = false;
};

}  // namespace hvd
