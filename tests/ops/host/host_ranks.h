// Ranks as threads over windows in plain memory, and the inputs for the tests of ops/host.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/bootstrap/topology.h"
#include "ops/host/host_context.h"
#include "ops/reduction/reduce.h"
#include "ops/transport/transport.h"
#include "tests/support/require.h"

namespace hvd::testing {

using Buffer = std::vector<std::byte>;

struct HostRun {
  std::vector<int> ranks_by_host{1};  // {2, 1}: ranks 0 and 1 on one host, rank 2 on another
  int cpus = 64;                      // a CPU for each rank, or fewer: then slices are claimed
  std::size_t chunk_bytes = 4096;     // small, so that little data spans several
  std::size_t arena_bytes = 0;        // of each rank; 0: none
  std::uint32_t first_step = 0;
  Duration timeout = 30s;
  const AbortFlag* abort = nullptr;
};

// One rank's side. Checks throw, since Catch2's macros belong to the test's own thread.
struct HostRank {
  int rank;
  int size;
  Topology topology;
  std::shared_ptr<TensorArena> arena;
  std::shared_ptr<HostContext> context;
  std::shared_ptr<Transport> transport;
};

// Runs the body on each rank; throws the first failure.
void on_host_ranks(const HostRun& run, const std::function<void(HostRank&)>& body);

// Of no bytes at all as well, which have no address.
inline bool has_bytes(const void* memory, const Buffer& expected) {
  return expected.empty() || std::memcmp(memory, expected.data(), expected.size()) == 0;
}
inline void write_bytes(void* memory, const Buffer& values) {
  if (!values.empty()) std::memcpy(memory, values.data(), values.size());
}

// The values of a tensor, of any bits for integers, moderate numbers for floats; the same wherever they are made.
Buffer tensor(DType dtype, std::int64_t elements, int rank, std::size_t piece);

// What reduce() makes of the ranks' tensors in rank order.
Buffer reduced(const Reduction& reduction, std::int64_t elements, int ranks, std::size_t piece);

}  // namespace hvd::testing
