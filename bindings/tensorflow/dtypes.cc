#include "bindings/tensorflow/dtypes.h"

namespace hvd::tf {

namespace {

struct Row {
  DataType tensorflow;
  hvd_dtype hvd;
  std::size_t bytes;
};

constexpr Row kRows[] = {
    {DataType::uint8, HVD_UINT8, 1},       {DataType::int8, HVD_INT8, 1},       {DataType::int16, HVD_INT16, 2},
    {DataType::int32, HVD_INT32, 4},       {DataType::int64, HVD_INT64, 8},     {DataType::float16, HVD_FLOAT16, 2},
    {DataType::bfloat16, HVD_BFLOAT16, 2}, {DataType::float32, HVD_FLOAT32, 4}, {DataType::float64, HVD_FLOAT64, 8},
    {DataType::boolean, HVD_BOOL, 1},      {DataType::uint16, HVD_UINT16, 2},   {DataType::uint32, HVD_UINT32, 4},
    {DataType::uint64, HVD_UINT64, 8},
};

}  // namespace

std::optional<hvd_dtype> to_hvd(DataType type) {
  for (const Row& row : kRows) {
    if (row.tensorflow == type) return row.hvd;
  }
  return std::nullopt;
}

DataType to_tensorflow(std::int32_t dtype) {
  for (const Row& row : kRows) {
    if (row.hvd == dtype) return row.tensorflow;
  }
  return DataType::uint8;  // hvd has no others
}

std::size_t size_of(DataType type) {
  for (const Row& row : kRows) {
    if (row.tensorflow == type) return row.bytes;
  }
  return 0;
}

}  // namespace hvd::tf
