// Performs a collective of GPU tensors through host memory: copies them out, calls a CPU backend, and copies them back.
//
// Used only on request (HVD_GPU_THROUGH_HOST=1), if NCCL is missing or does not support the call. It costs two copies
// over the bus, and the thread that drives the engine waits for both. Memory for the copies is pinned, and kept for the
// next call. Owned by a backend; used on the thread that drives the engine.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "core/base/abort_flag.h"
#include "core/base/clock.h"
#include "core/execution/backend.h"
#include "ops/gpu/cuda_driver.h"

namespace hvd::cuda {

class ThroughHost {
 public:
  // `choose`: returns the backend for a call on the CPU. A wait for the device ends with a Timeout after `timeout`.
  ThroughHost(std::shared_ptr<CudaDevices> devices, std::function<Backend&(const CollectiveCall&)> choose,
              Duration timeout, const AbortFlag& abort);
  ~ThroughHost();
  ThroughHost(const ThroughHost&) = delete;
  ThroughHost& operator=(const ThroughHost&) = delete;

  // Returns when the outputs are complete. `position`: of this rank in the call's set.
  void run(const CollectiveCall& call, int position);

 private:
  std::byte* host_memory(std::size_t bytes);
  void make_stream(int device);
  void copy_out(const CollectiveCall& call, const CollectiveCall& on_host, std::size_t position);
  void copy_in(const CollectiveCall& call, const CollectiveCall& on_host, std::size_t position);
  void wait_for_stream(const char* what) const;

  const std::shared_ptr<CudaDevices> devices_;
  const std::function<Backend&(const CollectiveCall&)> choose_;
  const Duration timeout_;
  const AbortFlag& abort_;
  std::shared_ptr<Driver> driver_;  // null: not used yet
  int device_ = -1;
  Stream stream_ = nullptr;
  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace hvd::cuda
