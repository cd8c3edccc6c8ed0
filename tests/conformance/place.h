// Where the calling rank's tensors are: in the CPU's memory, or on its fake GPU.
#pragma once

#include "core/tensor/tensor.h"
#include "tests/support/fake_gpu.h"
#include "tests/support/run_ranks.h"

namespace hvd::testing {

struct Place {
  const FakeGpu* gpu = nullptr;  // null: the CPU's memory
  int device = kCpuDevice;
};

// Of the calling thread, which is a rank.
inline Place& place_of_this_rank() {
  thread_local Place place;
  return place;
}

// Runs `body` on every rank of the layout; if it has GPUs, rank r's tensors lie on device r.
void run_ranks_in_place(const RunOptions& options, const std::function<void(Runtime&)>& body);

}  // namespace hvd::testing
