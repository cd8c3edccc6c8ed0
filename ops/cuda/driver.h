// The CUDA driver, loaded at run time: its functions, its devices' contexts, and its errors as exceptions.
//
// One per DataPlane, shared by all its users and by objects created from it. Any thread. The devices' primary contexts,
// which frameworks also use, are retained until the driver is destroyed.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "core/base/dynamic_library.h"
#include "ops/cuda/driver_abi.h"

namespace hvd::cuda {

class Driver {
 public:
  // `library`: a name or path; empty: libcuda.so.1. Throws Unsupported with the reason.
  explicit Driver(const std::string& library);
  ~Driver();
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  const DriverTable& call() const { return table_; }

  // Throws Aborted, with the driver's name for the failure, unless the result is a success.
  void check(Result result, const char* what) const;

  int devices() const { return devices_; }
  // Returns, for example, "libcuda.so.1, CUDA 12.4, 8 devices".
  std::string describe() const;

  // Throws InvalidArgument if the device does not exist.
  Context context(int device);

 private:
  const DynamicLibrary library_;
  DriverTable table_{};
  int version_ = 0;
  int devices_ = 0;
  std::mutex mutex_;
  std::map<int, Context> contexts_;  // retained; guarded by mutex_
};

// Makes a device's context current on the calling thread, and restores the previous one at the end of the scope: the
// thread may be the program's.
class ContextScope {
 public:
  ContextScope(Driver& driver, int device);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  const Driver& driver_;
  Context before_ = nullptr;
};

}  // namespace hvd::cuda
