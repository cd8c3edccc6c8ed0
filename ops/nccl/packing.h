// Chooses the tensors of a call that go through one packed buffer. Pure; the same on every rank, since it depends only
// on negotiated values, and on whether all ranks have the kernels.
//
// NCCL starts all tensors of a group together, but has a cost for each: many small ones cost more than one of the same
// size, and packing costs a copy at the speed of the device's memory, twice. Therefore small ones are packed, and large
// ones are passed separately; all are packed if only a kernel can scale or widen them.
#pragma once

#include <cstdint>
#include <vector>

#include "core/operation/collective_call.h"
#include "ops/nccl/reduction_plan.h"

namespace hvd::nccl {

// Tensors below this many bytes are small. Not measured on a GPU yet: a copy of 256 KB there and back takes half a
// microsecond of a memory with 2 TB/s, NCCL's work on one more tensor a microsecond or more.
inline constexpr std::int64_t kSmallBytes = 256 << 10;

// Alignment of tensors in a packed buffer, in elements: a multiple of 16 bytes for each type.
inline constexpr std::int64_t kPackedAlignment = 128;

struct Packing {
  struct Place {
    std::size_t piece;
    std::int64_t offset;  // in elements

    bool operator==(const Place&) const = default;
  };
  std::vector<Place> places;  // empty: nothing is packed
  std::int64_t elements = 0;  // of the buffer

  bool operator==(const Packing&) const = default;
};

Packing plan_packing(const CollectiveCall& call, const ReductionPlan& plan, bool kernels);

}  // namespace hvd::nccl
