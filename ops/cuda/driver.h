// The CUDA driver, opened at run time: its functions, its devices' contexts, its errors as ours.
//
// One for each DataPlane, shared by all that uses it and what comes from it. Any thread. Devices' primary contexts,
// which are the ones that frameworks use, are retained as long as the driver lives.
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
  // `library`: a name or path; empty: libcuda.so.1. Throws Unsupported that says what is missing.
  explicit Driver(const std::string& library);
  ~Driver();
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  const DriverTable& call() const { return table_; }

  // Throws Aborted, with the driver's name for the failure, unless the result is a success.
  void check(Result result, const char* what) const;

  int devices() const { return devices_; }
  // "libcuda.so.1, CUDA 12.4, 8 devices"
  std::string describe() const;

  // Throws InvalidArgument if there is no such device.
  Context context(int device);

 private:
  const DynamicLibrary library_;
  DriverTable table_{};
  int version_ = 0;
  int devices_ = 0;
  std::mutex mutex_;
  std::map<int, Context> contexts_;  // retained; guarded by mutex_
};

// Makes a device's context the calling thread's, and the one it had before again at the end of the scope: the thread
// may be the program's own.
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
