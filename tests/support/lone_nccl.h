// The NCCL backend of a job of one rank, over the fakes, without an engine: the caller's thread drives it.
#pragma once

#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "core/config.h"
#include "core/execution/backend.h"
#include "ops/gpu/nccl_backend.h"
#include "tests/support/fake_gpu.h"

namespace hvd::testing {

class LoneNccl {
 public:
  LoneNccl() {
    call_.set = &set_;
    call_.device = kAccelerator;
    call_.ordinal = 0;
  }

  cuda::CudaDevices& devices() { return *devices_; }
  const Config& config() const { return config_; }
  const AbortFlag& abort() const { return abort_; }

  // Sums float32 tensors of GPU 0. Returns the end of that, which is in the backend's stream.
  std::shared_ptr<DeviceCompletion> allreduce(std::vector<Piece> pieces) {
    call_.pieces = std::move(pieces);
    ++call_.sequence;
    backend_->run(call_);
    return backend_->enqueued();
  }
  void watch() { backend_->watch(Clock::now()); }

 private:
  // For tensors on the CPU.
  class Host final : public Backend {
   public:
    const char* name() const override { return "alone"; }
    int score(const CollectiveCall&) const override { return 1; }
    void run(const CollectiveCall& call) override {
      for (const Piece& piece : call.pieces) {
        std::memcpy(piece.output, piece.input, bytes_of(piece.elements, call.dtype));
      }
    }
  };

  const Config config_ = read_config(FakeGpu::environment()).config;
  const Topology topology_ = make_topology(0, {RankIdentity{}});
  const ProcessSet set_{.ranks = {0}};
  const Log log_{"rank 0", LogLevel::warning};
  AbortFlag abort_;
  Host host_;
  const std::shared_ptr<cuda::CudaDevices> devices_ = std::make_shared<cuda::CudaDevices>(config_.gpu.cuda_library);
  const std::unique_ptr<Backend> backend_ = make_nccl_backend({.topology = topology_,
                                                               .config = config_,
                                                               .abort = abort_,
                                                               .log = log_,
                                                               .devices = devices_,
                                                               .cpu_backend = host_,
                                                               .through_host = nullptr});
  CollectiveCall call_;
};

}  // namespace hvd::testing
