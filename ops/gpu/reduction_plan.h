// Chooses how NCCL performs a reduction, or why it cannot, and which tensors of a call share one buffer. Pure; depends
// only on negotiated values, and on whether all ranks have the kernels, so it is the same on every rank.
//
// hvd reduces with factors before and after. NCCL has no separate pass over the data for either, but can multiply each
// input of a sum by one factor of the tensors' type, and divide a sum by the number of ranks. NCCL is used for:
//
//   sums of floats      both factors as one. Of a 16-bit type it must be a number of that type, or the result would be
//                       off by up to 2^-9; except in an average (a factor of 1/n), which NCCL rounds in the same way
//   sums of integers    an integer factor; or the average over all ranks, truncated toward zero as hvd's own is
//   other reductions    no factor
//
// All others need hvd's own kernels (bucket_kernels.h), which scale while they pack and unpack, and widen the
// type that NCCL does not support. Without kernels they are refused rather than performed differently.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/operation/collective_call.h"
#include "ops/gpu/nccl_library.h"

namespace hvd::nccl {

struct ReductionPlan {
  Type type = Type::float32;
  Op op = Op::sum;
  std::optional<double> scale{};  // with op sum: factor of each input
  bool by_kernels = false;        // each tensor is packed, scaled by `before`, and unpacked, scaled by `after`
  double before = 1.0, after = 1.0;

  bool operator==(const ReductionPlan&) const = default;
};

// `kernels`: all ranks have them. Throws Unsupported with the reason and advice.
ReductionPlan plan_reduction(const CollectiveCall& call, bool kernels);

// Tensors below this many bytes are small. Not measured on a GPU yet: a copy of 256 KB there and back takes half a
// microsecond of a memory with 2 TB/s, NCCL's work on one more tensor a microsecond or more.
inline constexpr std::int64_t kSmallBytes = 256 << 10;

// Alignment of tensors in a packed buffer, in elements: a multiple of 16 bytes for each type.
inline constexpr std::int64_t kPackedAlignment = 128;

// One tensor in a packed buffer.
struct PackedPiece {
  std::size_t piece;    // of the call
  std::int64_t offset;  // in elements

  bool operator==(const PackedPiece&) const = default;
};

// The tensors of a call that go through one packed buffer.
//
// NCCL starts all tensors of a group together, but has a cost for each: many small ones cost more than one of the same
// size, and packing costs a copy at the speed of the device's memory, twice. Therefore small ones are packed, and large
// ones are passed separately; all are packed if only a kernel can scale or widen them.
struct Packing {
  std::vector<PackedPiece> pieces;  // empty: nothing is packed
  std::int64_t elements = 0;        // of the buffer

  bool operator==(const Packing&) const = default;
};

Packing plan_packing(const CollectiveCall& call, const ReductionPlan& plan, bool kernels);

}  // namespace hvd::nccl
