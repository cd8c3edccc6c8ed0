// Elements of any type, as doubles: how tests fill tensors and read results.
#pragma once

#include <cstddef>
#include <vector>

#include "core/tensor/collective.h"
#include "core/tensor/tensor.h"
#include "tests/support/sanitized.h"

namespace hvd::testing {

using Buffer = std::vector<std::byte>;

#ifdef HVD_SANITIZED  // a type of each size
inline constexpr DType kAllTypes[] = {DType::uint8, DType::bfloat16, DType::float32, DType::int64};
inline constexpr ReduceOp kReductions[] = {ReduceOp::sum, ReduceOp::max};
inline constexpr int kRankCounts[] = {1, 2, 5};
#else
inline constexpr DType kAllTypes[] = {DType::uint8,   DType::int8,     DType::int16,   DType::int32,   DType::int64,
                                      DType::float16, DType::bfloat16, DType::float32, DType::float64, DType::boolean};
inline constexpr ReduceOp kReductions[] = {ReduceOp::sum, ReduceOp::min, ReduceOp::max, ReduceOp::product};
inline constexpr int kRankCounts[] = {1, 2, 3, 4, 5, 8};
#endif

// Values that every type holds exactly.
Buffer encode(const std::vector<double>& values, DType dtype);
std::vector<double> decode(const Buffer& bytes, DType dtype);

// A small whole number that depends on all three; sums and products over eight ranks fit every type.
double small_value(ReduceOp op, DType dtype, int rank, std::size_t piece, std::size_t index);

double fold(ReduceOp op, double left, double right);

}  // namespace hvd::testing
