// TensorFlow's element types and hvd's.
#pragma once

#include <cstddef>
#include <optional>

#include "bindings/tensorflow/c_api.h"
#include "hvd.h"

namespace hvd::tf {

// As an op's attribute lists them.
inline constexpr const char* kTypes = "{uint8, int8, int16, int32, int64, half, bfloat16, float, double, bool}";

std::optional<hvd_dtype> to_hvd(DataType type);
DataType to_tensorflow(std::int32_t dtype);
std::size_t size_of(DataType type);

}  // namespace hvd::tf
