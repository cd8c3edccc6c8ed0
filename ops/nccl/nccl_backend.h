// The backend for tensors on GPUs: NCCL, in stream order.
//
// run() puts a call into a stream of its own, which waits for the tensors' ready events before and gets an event
// afterwards, and returns; whoever drives goes on, and callers wait for the event, themselves or with their streams.
// Nothing waits for the GPU but those. Meanwhile watch() looks after what is in the stream: a failure, or an operation
// that takes longer than the job's collective timeout, ends the job as it would on the CPU, and the communicator is
// broken off, so that the GPU stops and nobody hangs behind it.
//
// NCCL is opened at the first call, which all ranks reach at the same point of their common order. They then tell one
// another what they have (introduction.h), through a backend for the CPU's memory, and make a communicator: one for the
// process set, each rank with the device of its first tensor. Through the same backend they hear one another before a
// call of a locked schedule: NCCL knows no way of declining.
//
// What NCCL cannot do is an error, or goes through the host's memory if somebody has asked for that. Owned by the
// executor; whoever drives the engine.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>

#include "core/base/abort_flag.h"
#include "core/base/error.h"
#include "core/base/log.h"
#include "core/config.h"
#include "core/execution/backend.h"
#include "core/rendezvous/topology.h"
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
  struct Parts {  // references outlive the backend, but for `host`, which it does not use when it is destroyed
    const Topology& topology;
    const Config& config;
    AbortFlag& abort;
    const Log& log;
    std::shared_ptr<cuda::CudaDevices> devices;
    Backend& host;                                    // for tensors in the CPU's memory; serves the same ranks
    std::unique_ptr<cuda::ThroughHost> through_host;  // for what NCCL cannot do; null: that is an error
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
    std::shared_ptr<const DeviceEvent> begun;  // its inputs are there, and all before it is over
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
  std::optional<Status> verdict_;  // empty: the ranks have not met yet
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
