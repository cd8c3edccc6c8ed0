#include "tests/ops/algorithms/element_values.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "ops/reduction/reduce.h"

namespace hvd::testing {

namespace {

// Calls with a value of the C++ type that holds the elements; 16-bit floats go through float.
template <typename Body>
void with_type(DType dtype, const Body& body) {
  switch (dtype) {
    case DType::uint8:
    case DType::boolean: return body(std::uint8_t{});
    case DType::int8: return body(std::int8_t{});
    case DType::int16: return body(std::int16_t{});
    case DType::int32: return body(std::int32_t{});
    case DType::int64: return body(std::int64_t{});
    case DType::float64: return body(double{});
    default: return body(float{});
  }
}

Buffer converted(const Buffer& bytes, DType dtype, DType from, DType to) {
  const std::size_t elements = bytes.size() / size_of(from);
  Buffer result(elements * size_of(to));
  const void* input = bytes.data();
  if (elements > 0) reduce({.dtype = dtype}, from, {&input, 1}, to, result.data(), elements);
  return result;
}

}  // namespace

Buffer encode(const std::vector<double>& values, DType dtype) {
  const DType wide = accumulator_of(dtype);
  Buffer bytes(values.size() * size_of(wide));
  with_type(dtype, [&]<typename T>(T) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const T value = static_cast<T>(values[i]);
      std::memcpy(bytes.data() + i * sizeof value, &value, sizeof value);
    }
  });
  return wide == dtype ? bytes : converted(bytes, dtype, wide, dtype);
}

std::vector<double> decode(const Buffer& bytes, DType dtype) {
  const DType wide = accumulator_of(dtype);
  const Buffer source = wide == dtype ? bytes : converted(bytes, dtype, dtype, wide);
  std::vector<double> values(source.size() / size_of(wide));
  with_type(dtype, [&]<typename T>(T) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      T value;
      std::memcpy(&value, source.data() + i * sizeof value, sizeof value);
      values[i] = static_cast<double>(value);
    }
  });
  return values;
}

double small_value(ReduceOp op, DType dtype, int rank, std::size_t piece, std::size_t index) {
  const std::size_t mixed = index * 7 + piece * 5 + static_cast<std::size_t>(rank) * 3 + index / 64;
  if (dtype == DType::boolean) return static_cast<double>(mixed % 2);
  if (op == ReduceOp::product) return mixed % 5 == 0 ? 2.0 : 1.0;
  if (dtype == DType::uint8) return static_cast<double>(mixed % 11);
  return static_cast<double>(mixed % 13) - 6.0;
}

double fold(ReduceOp op, double left, double right) {
  switch (op) {
    case ReduceOp::min: return std::min(left, right);
    case ReduceOp::max: return std::max(left, right);
    case ReduceOp::product: return left * right;
    default: return left + right;
  }
}

}  // namespace hvd::testing
