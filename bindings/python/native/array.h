// Memory of arrays that other libraries made, without NumPy or any of those libraries: their addresses through the
// buffer protocol and NumPy's array interface, and whole tensors through DLPack. All functions require the GIL.
#pragma once

#include <dlpack/dlpack.h>
#include <pybind11/pybind11.h>

#include <cstdint>
#include <optional>
#include <string>

namespace hvd::python {

// The address of what a memoryview shows; valid as long as the memoryview is.
std::uintptr_t buffer_address(pybind11::handle view);

// The address of an object with NumPy's __array_struct__; 0 if its elements do not lie aligned, in the machine's byte
// order and without gaps in the order of their indices (C order), or are to be written and cannot be.
std::uintptr_t plain_address(pybind11::handle array, bool for_writing);

// The address of the tensor in a capsule of this module, which nobody has taken.
std::uintptr_t capsule_address(const pybind11::capsule& capsule);

// The owner of a DLPack tensor, as its consumer: it releases the tensor when it is destroyed. A tensor on the CPU is
// also a buffer of Python, which NumPy, Arrow and memoryview take without a copy.
class ManagedTensor {
 public:
  // Takes the tensor out of the capsule, of the versioned or of the unversioned kind. `format`: that of the buffer, as
  // of the struct module; by default it follows from the element type.
  ManagedTensor(const pybind11::capsule& capsule, std::optional<std::string> format);
  ~ManagedTensor();
  ManagedTensor(const ManagedTensor&) = delete;
  ManagedTensor& operator=(const ManagedTensor&) = delete;

  std::uintptr_t address() const;
  pybind11::tuple shape() const;
  // Code and bits of an element, as in DLPack.
  pybind11::tuple type() const;
  // Type and number of the device, as in DLPack.
  pybind11::tuple device() const;
  bool is_contiguous() const;
  bool is_read_only() const { return read_only_; }

  // For pybind11's buffer protocol; throws BufferError if the tensor is not on the CPU.
  pybind11::buffer_info buffer() const;

 private:
  // Exactly one of the two is not null.
  DLManagedTensor* unversioned_ = nullptr;
  DLManagedTensorVersioned* versioned_ = nullptr;
  const DLTensor* tensor_ = nullptr;
  bool read_only_ = false;
  const std::optional<std::string> format_;
};

}  // namespace hvd::python
