// Conversion between the element types of TensorFlow and of hvd.
#pragma once

#include <cstddef>
#include <optional>

#include "bindings/tensorflow/c_api.h"
#include "hvd.h"

namespace hvd::tf {

// Lists for the type attributes of ops: those that reduce, and those that only move data.
inline constexpr const char* kReducibleTypes =
    "{uint8, int8, int16, int32, int64, half, bfloat16, float, double, bool}";
inline constexpr const char* kMovableTypes =
    "{uint8, int8, int16, int32, int64, half, bfloat16, float, double, bool, uint16, uint32, uint64}";

std::optional<hvd_dtype> to_hvd(DataType type);
DataType to_tensorflow(std::int32_t dtype);
std::size_t size_of(DataType type);

}  // namespace hvd::tf
