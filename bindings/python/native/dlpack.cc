#include "bindings/python/native/dlpack.h"

#include <dlpack/dlpack.h>

#include <memory>
#include <vector>

namespace py = pybind11;

namespace hvd::python {

namespace {

// DLPack's name for a capsule with a DLManagedTensor.
constexpr const char* kCapsuleName = "dltensor";

struct Result {
  DLManagedTensor managed{};
  std::vector<std::int64_t> shape;
  std::unique_ptr<void, void (*)(void*)> memory{nullptr, hvd_free};
};

DLDataType dlpack_type(std::int32_t dtype) {
  switch (dtype) {
    case HVD_UINT8: return {kDLUInt, 8, 1};
    case HVD_INT8: return {kDLInt, 8, 1};
    case HVD_INT16: return {kDLInt, 16, 1};
    case HVD_INT32: return {kDLInt, 32, 1};
    case HVD_INT64: return {kDLInt, 64, 1};
    case HVD_FLOAT16: return {kDLFloat, 16, 1};
    case HVD_BFLOAT16: return {kDLBfloat, 16, 1};
    case HVD_FLOAT32: return {kDLFloat, 32, 1};
    case HVD_FLOAT64: return {kDLFloat, 64, 1};
    case HVD_BOOL: return {kDLBool, 8, 1};
    case HVD_UINT16: return {kDLUInt, 16, 1};
    case HVD_UINT32: return {kDLUInt, 32, 1};
    case HVD_UINT64: return {kDLUInt, 64, 1};
    default: throw py::value_error("a result of a type that DLPack cannot name");
  }
}

void free_result(DLManagedTensor* managed) { delete static_cast<Result*>(managed->manager_ctx); }

// The consumer of a tensor renames the capsule.
void free_if_not_taken(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, kCapsuleName) == 0) return;
  free_result(static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule, kCapsuleName)));
}

}  // namespace

py::capsule to_dlpack(const hvd_tensor& tensor) {
  auto result = std::make_unique<Result>();
  result->memory.reset(tensor.data);
  result->shape.assign(tensor.shape, tensor.shape + tensor.dimensions);
  result->managed.dl_tensor = {
      .data = tensor.data,
      .device = tensor.device == HVD_CPU ? DLDevice{kDLCPU, 0} : DLDevice{kDLCUDA, tensor.device},
      .ndim = tensor.dimensions,
      .dtype = dlpack_type(tensor.dtype),
      .shape = result->shape.data(),
      .strides = nullptr,
      .byte_offset = 0};
  result->managed.manager_ctx = result.get();
  result->managed.deleter = free_result;
  PyObject* capsule = PyCapsule_New(&result->managed, kCapsuleName, free_if_not_taken);
  if (capsule == nullptr) throw py::error_already_set();
  static_cast<void>(result.release());
  return py::reinterpret_steal<py::capsule>(capsule);
}

}  // namespace hvd::python
