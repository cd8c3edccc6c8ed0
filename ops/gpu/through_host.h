// Performs a collective of GPU tensors through host memory: copies them out, calls a CPU backend, and copies them back.
//
// Used only on request (HVD_GPU_THROUGH_HOST=1), if NCCL is missing or does not support the call. It costs two copies
// over the bus, and the thread that drives the engine waits for both. Memory for the copies is pinned, and kept for the
// next call. Owned by a backend; used on the thread that drives the engine.
#pragma once

#include <functional>
#include <memory>

#include "core/base/abort_flag.h"
#include "core/base/clock.h"
#include "core/execution/backend.h"
#include "ops/gpu/cuda_driver.h"

namespace hvd::cuda {

// Returns the backend for a call on the CPU.
using ChooseBackend = std::function<Backend&(const CollectiveCall&)>;

// Returns when the outputs are complete. `position`: of this rank in the call's set.
using ThroughHostMemory = std::function<void(const CollectiveCall& call, int position)>;

// A wait for the device ends with a Timeout after `timeout`.
ThroughHostMemory make_through_host(std::shared_ptr<CudaDevices> devices, ChooseBackend choose, Duration timeout,
                                    const AbortFlag& abort);

}  // namespace hvd::cuda
