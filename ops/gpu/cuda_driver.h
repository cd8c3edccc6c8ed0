// The CUDA driver, loaded at run time: its functions, its devices' contexts, its errors as exceptions, and the
// DeviceRuntime of core for its devices.
//
// The part of its binary interface that hvd calls is declared independently: hvd builds without CUDA headers, and
// starts without CUDA. Numbers are those of CUDA 11 and later, which do not change.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/dynamic_library.h"
#include "core/base/mutex.h"
#include "core/device/device_runtime.h"

namespace hvd::cuda {

using Result = int;
inline constexpr Result kSuccess = 0, kNotReady = 600, kCaptureUnsupported = 900;

using Device = int;
using Context = struct OpaqueContext*;
using Stream = struct OpaqueStream*;
using Event = struct OpaqueEvent*;
using Module = struct OpaqueModule*;
using Function = struct OpaqueFunction*;
using Address = unsigned long long;

inline constexpr int kRelaxedCapture = 2;

inline constexpr unsigned kNonBlockingStream = 1;  // does not wait for the default stream
inline constexpr unsigned kEventWithoutTiming = 2;

// The driver's functions, by subject and symbol. Throws Unsupported if one is missing.
struct ProcessFunctions {
  const DynamicLibrary& from;
  Result (*init)(unsigned flags) = from.require("cuInit");
  Result (*version)(int* version) = from.require("cuDriverGetVersion");  // 12040 is 12.4
  Result (*error_name)(Result result, const char** text) = from.find("cuGetErrorName");
  Result (*error_text)(Result result, const char** text) = from.find("cuGetErrorString");
  Result (*device_count)(int* count) = from.require("cuDeviceGetCount");
};
struct ContextFunctions {
  const DynamicLibrary& from;
  Result (*device)(Device* device, int ordinal) = from.require("cuDeviceGet");
  Result (*retain_primary)(Context* context, Device device) = from.require("cuDevicePrimaryCtxRetain");
  Result (*release_primary)(Device device) = from.require("cuDevicePrimaryCtxRelease_v2");
  Result (*current)(Context* context) = from.require("cuCtxGetCurrent");
  Result (*set_current)(Context context) = from.require("cuCtxSetCurrent");
};
struct StreamFunctions {
  const DynamicLibrary& from;
  Result (*create)(Stream* stream, unsigned flags, int priority) = from.require("cuStreamCreateWithPriority");
  Result (*priority_range)(int* least, int* greatest) = from.require("cuCtxGetStreamPriorityRange");
  Result (*destroy)(Stream stream) = from.require("cuStreamDestroy_v2");
  Result (*query)(Stream stream) = from.require("cuStreamQuery");
  Result (*id)(Stream stream, unsigned long long* id) = from.find("cuStreamGetId");  // CUDA 12.0, otherwise null
  Result (*wait_event)(Stream stream, Event event, unsigned flags) = from.require("cuStreamWaitEvent");
  Result (*is_capturing)(Stream stream, int* status) = from.require("cuStreamIsCapturing");  // 0: no
  Result (*exchange_capture_mode)(int* mode) = from.require("cuThreadExchangeStreamCaptureMode");
};
struct EventFunctions {
  const DynamicLibrary& from;
  Result (*create)(Event* event, unsigned flags) = from.require("cuEventCreate");
  Result (*destroy)(Event event) = from.require("cuEventDestroy_v2");
  Result (*record)(Event event, Stream stream) = from.require("cuEventRecord");
  Result (*record_all_streams)(Context, Event) = from.find("cuCtxRecordEvent");  // CUDA 12.5, otherwise null
  Result (*query)(Event event) = from.require("cuEventQuery");
};
struct MemoryFunctions {
  const DynamicLibrary& from;
  Result (*allocate)(Address* address, std::size_t bytes) = from.require("cuMemAlloc_v2");
  Result (*free)(Address address) = from.require("cuMemFree_v2");
  Result (*allocate_host)(void** memory, std::size_t bytes) = from.require("cuMemAllocHost_v2");  // pinned
  Result (*free_host)(void* memory) = from.require("cuMemFreeHost");
  Result (*copy_in)(Address to, const void* source, std::size_t, Stream) = from.require("cuMemcpyHtoDAsync_v2");
  Result (*copy_out)(void* to, Address source, std::size_t, Stream) = from.require("cuMemcpyDtoHAsync_v2");
};
struct ModuleFunctions {
  const DynamicLibrary& from;
  Result (*load)(Module* module, const void* image) = from.require("cuModuleLoadData");
  Result (*unload)(Module module) = from.require("cuModuleUnload");
  Result (*function)(Function* function, Module module, const char*) = from.require("cuModuleGetFunction");
  Result (*launch)(Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                   unsigned block_y, unsigned block_z, unsigned shared_bytes, Stream, void** parameters,
                   void** extra) = from.require("cuLaunchKernel");
};

struct DriverTable {
  const DynamicLibrary& from;
  ProcessFunctions process{from};
  ContextFunctions contexts{from};
  StreamFunctions streams{from};
  EventFunctions events{from};
  MemoryFunctions memory{from};
  ModuleFunctions modules{from};
};

// One per DataPlane, shared by all its users and by objects created from it. Any thread. The devices' primary contexts,
// which frameworks also use, are retained until the driver is destroyed.
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

  // Returns an event of a device whose context is current, valid until give_back(). Events that were given back are
  // reused: creating an event costs more than recording it.
  Event take_event(int device);
  void give_back(int device, Event event) noexcept;

  // Returns ascending numbers, to order actions of different threads.
  std::uint64_t next_number() { return ++last_number_; }

 private:
  struct Primary {
    Context context;          // retained
    std::vector<Event> idle;  // given back
  };

  const DynamicLibrary library_;
  const DriverTable table_{library_};
  int version_ = 0;
  int devices_ = 0;
  Mutex mutex_;
  std::map<int, Primary> primaries_ GUARDED_BY(mutex_);  // by device
  std::atomic<std::uint64_t> last_number_{0};
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
  bool switched_ = false;  // not if the context was current before: a framework's thread has it
};

// Switches the calling thread to relaxed capture mode: it may allocate memory and query events while another thread
// captures a stream. In the default mode such calls invalidate the capture.
class CaptureModeGuard {
 public:
  explicit CaptureModeGuard(const Driver& driver) : driver_(driver) { exchange(); }
  ~CaptureModeGuard() { exchange(); }
  CaptureModeGuard(const CaptureModeGuard&) = delete;
  CaptureModeGuard& operator=(const CaptureModeGuard&) = delete;

 private:
  void exchange() { driver_.call().streams.exchange_capture_mode(&mode_); }

  const Driver& driver_;
  int mode_ = kRelaxedCapture;
};

// The DeviceRuntime of core for CUDA devices. Opens the driver at the first use of a device: a job without GPU tensors
// never loads it. Any thread.
class CudaDevices final : public DeviceRuntime {
 public:
  // `library`: as for Driver.
  explicit CudaDevices(std::string library) : library_(std::move(library)) {}

  std::shared_ptr<const DeviceEvent> record(int device, void* stream) override;
  std::shared_ptr<void> allocate(int device, std::size_t bytes) override;

  // Throws Unsupported with the reason, at each call.
  std::shared_ptr<Driver> driver();

 private:
  const std::string library_;
  Mutex mutex_;
  std::shared_ptr<Driver> driver_ GUARDED_BY(mutex_);  // null: not opened yet
};

}  // namespace hvd::cuda
