// RAII owners of objects that the C API creates.
#pragma once

#include <memory>
#include <string>

#include "bindings/tensorflow/c_api.h"

namespace hvd::tf {

// TensorFlow's functions, looked up when this library was loaded.
const CApi& api();

struct DeleteTensor {
  void operator()(Tensor* tensor) const { api().DeleteTensor(tensor); }
};
using OwnedTensor = std::unique_ptr<Tensor, DeleteTensor>;

class OwnedStatus {
 public:
  OwnedStatus() : status_(api().NewStatus()) {}
  OwnedStatus(Code code, const std::string& message) : OwnedStatus() { set(code, message); }
  OwnedStatus(const OwnedStatus&) = delete;
  OwnedStatus& operator=(const OwnedStatus&) = delete;
  ~OwnedStatus() { api().DeleteStatus(status_); }

  void set(Code code, const std::string& message) { api().SetStatus(status_, code, message.c_str()); }
  bool ok() const { return api().GetCode(status_) == Code::ok; }
  Status* get() const { return status_; }

 private:
  Status* const status_;
};

}  // namespace hvd::tf
