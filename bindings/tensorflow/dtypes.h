// TensorFlow's element types and hvd's.
#pragma once

#include <cstddef>
#include <optional>

#include "bindings/tensorflow/c_api.h"
#include "hvd.h"

namespace hvd::tf {

// As an op's attribute lists them: of ops that reduce, and of those that move.
inline constexpr const char* kReducibleTypes =
    "{uint8, int8, int16, int32, int64, half, bfloat16, float, double, bool}";
inline constexpr const char* kMovableTypes =
    "{uint8, int8, int16, int32, int64, half, bfloat16, float, double, bool, uint16, uint32, uint64}";

std::optional<hvd_dtype> to_hvd(DataType type);
DataType to_tensorflow(std::int32_t dtype);
std::size_t size_of(DataType type);

}  // namespace hvd::tf
