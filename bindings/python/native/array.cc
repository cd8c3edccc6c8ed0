#include "bindings/python/native/array.h"

#include <cstddef>
#include <utility>
#include <vector>

namespace py = pybind11;

namespace hvd::python {

namespace {

// What __array_struct__ returns in a capsule: NumPy's PyArrayInterface, which its documentation fixes for everybody.
struct ArrayInterface {
  int two;  // a mark
  int dimensions;
  char kind;
  int item_bytes;
  int flags;
  std::intptr_t* shape;
  std::intptr_t* strides;
  void* data;
  PyObject* description;
};
constexpr int kCContiguous = 0x1;
constexpr int kAligned = 0x100;
constexpr int kNativeByteOrder = 0x200;
constexpr int kWriteable = 0x400;

constexpr const char* kUnversioned = "dltensor";
constexpr const char* kVersioned = "dltensor_versioned";

// The formats of the struct module. Types that Python has no format for are shown as bytes of the same number.
std::string format_of(DLDataType type) {
  const int bytes = type.bits / 8;
  const auto of_size = [bytes](const char* formats) {  // of 1, 2, 4 and 8 bytes
    return std::string(1, formats[bytes == 8 ? 3 : bytes / 2]);
  };
  switch (type.code) {
    case kDLInt: return of_size("bhiq");
    case kDLUInt: return of_size("BHIQ");
    case kDLBool: return "?";
    case kDLFloat:
      if (bytes <= 8) return of_size("Befd");
      break;
    case kDLComplex:
      if (bytes >= 8) return bytes == 8 ? "Zf" : "Zd";
      break;
    default: break;
  }
  return bytes == 1 ? "B" : std::to_string(bytes) + "s";
}

std::vector<py::ssize_t> strides_of(const DLTensor& tensor) {
  std::vector<py::ssize_t> strides(static_cast<std::size_t>(tensor.ndim));
  py::ssize_t bytes = tensor.dtype.bits / 8;
  for (int i = tensor.ndim - 1; i >= 0; --i) {
    strides[static_cast<std::size_t>(i)] =
        tensor.strides == nullptr ? bytes : static_cast<py::ssize_t>(tensor.strides[i]) * (tensor.dtype.bits / 8);
    bytes *= tensor.shape[i];
  }
  return strides;
}

}  // namespace

std::uintptr_t buffer_address(py::handle view) {
  Py_buffer buffer;
  if (PyObject_GetBuffer(view.ptr(), &buffer, PyBUF_FULL_RO) != 0) throw py::error_already_set();
  const auto address = reinterpret_cast<std::uintptr_t>(buffer.buf);
  PyBuffer_Release(&buffer);
  return address;
}

std::uintptr_t plain_address(py::handle array, bool for_writing) {
  static PyObject* const name = PyUnicode_InternFromString("__array_struct__");
  const auto capsule = py::reinterpret_steal<py::object>(PyObject_GetAttr(array.ptr(), name));
  if (!capsule) throw py::error_already_set();
  const auto* const found = static_cast<const ArrayInterface*>(PyCapsule_GetPointer(capsule.ptr(), nullptr));
  if (found == nullptr) throw py::error_already_set();
  const int needed = kCContiguous | kAligned | kNativeByteOrder | (for_writing ? kWriteable : 0);
  return (found->flags & needed) == needed ? reinterpret_cast<std::uintptr_t>(found->data) : 0;
}

std::uintptr_t capsule_address(const py::capsule& capsule) {
  const auto* const managed = static_cast<const DLManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), kUnversioned));
  if (managed == nullptr) throw py::error_already_set();
  return reinterpret_cast<std::uintptr_t>(managed->dl_tensor.data);
}

ManagedTensor::ManagedTensor(const py::capsule& capsule, std::optional<std::string> format)
    : format_(std::move(format)) {
  const auto require_scalars = [](const DLTensor& tensor) {
    if (tensor.dtype.lanes != 1) throw py::value_error("a tensor of vectors (DLPack's lanes) is not supported");
  };
  if (PyCapsule_IsValid(capsule.ptr(), kVersioned) != 0) {
    versioned_ = static_cast<DLManagedTensorVersioned*>(PyCapsule_GetPointer(capsule.ptr(), kVersioned));
    if (versioned_->version.major != DLPACK_MAJOR_VERSION) {
      throw py::value_error("a tensor of a version of DLPack that is not known");
    }
    require_scalars(versioned_->dl_tensor);
    tensor_ = &versioned_->dl_tensor;
    read_only_ = (versioned_->flags & DLPACK_FLAG_BITMASK_READ_ONLY) != 0;
    PyCapsule_SetName(capsule.ptr(), "used_dltensor_versioned");
  } else if (PyCapsule_IsValid(capsule.ptr(), kUnversioned) != 0) {
    unversioned_ = static_cast<DLManagedTensor*>(PyCapsule_GetPointer(capsule.ptr(), kUnversioned));
    require_scalars(unversioned_->dl_tensor);
    tensor_ = &unversioned_->dl_tensor;
    PyCapsule_SetName(capsule.ptr(), "used_dltensor");
  } else {
    throw py::value_error("a capsule with a DLPack tensor that nobody has taken is needed");
  }
}

ManagedTensor::~ManagedTensor() {
  if (unversioned_ != nullptr && unversioned_->deleter != nullptr) unversioned_->deleter(unversioned_);
  if (versioned_ != nullptr && versioned_->deleter != nullptr) versioned_->deleter(versioned_);
}

std::uintptr_t ManagedTensor::address() const {
  return reinterpret_cast<std::uintptr_t>(tensor_->data) + tensor_->byte_offset;
}

py::tuple ManagedTensor::shape() const {
  py::tuple shape(static_cast<std::size_t>(tensor_->ndim));
  for (int i = 0; i < tensor_->ndim; ++i) shape[static_cast<std::size_t>(i)] = tensor_->shape[i];
  return shape;
}

py::tuple ManagedTensor::type() const {
  return py::make_tuple(static_cast<int>(tensor_->dtype.code), tensor_->dtype.bits);
}

py::tuple ManagedTensor::device() const {
  return py::make_tuple(static_cast<int>(tensor_->device.device_type), tensor_->device.device_id);
}

bool ManagedTensor::is_contiguous() const {
  if (tensor_->strides == nullptr) return true;
  std::int64_t expected = 1;
  for (int i = tensor_->ndim - 1; i >= 0; --i) {
    if (tensor_->shape[i] == 0) return true;
    if (tensor_->shape[i] != 1 && tensor_->strides[i] != expected) return false;
    expected *= tensor_->shape[i];
  }
  return true;
}

py::buffer_info ManagedTensor::buffer() const {
  const auto device = tensor_->device.device_type;
  if (device != kDLCPU && device != kDLCUDAHost) throw py::buffer_error("the tensor is not in the CPU's memory");
  return {static_cast<std::byte*>(tensor_->data) + tensor_->byte_offset,
          tensor_->dtype.bits / 8,
          format_.value_or(format_of(tensor_->dtype)),
          tensor_->ndim,
          std::vector<py::ssize_t>(tensor_->shape, tensor_->shape + tensor_->ndim),
          strides_of(*tensor_),
          read_only_};
}

}  // namespace hvd::python
