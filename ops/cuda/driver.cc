#include "ops/cuda/driver.h"

#include "core/base/error.h"

namespace hvd::cuda {

namespace {

DriverTable functions_of(const DynamicLibrary& library) {
  DriverTable table{};
  library.require(table.init, "cuInit");
  library.require(table.driver_version, "cuDriverGetVersion");
  library.accept(table.error_name, "cuGetErrorName");
  library.accept(table.error_text, "cuGetErrorString");
  library.require(table.device_count, "cuDeviceGetCount");
  library.require(table.device, "cuDeviceGet");
  library.require(table.retain_primary_context, "cuDevicePrimaryCtxRetain");
  library.require(table.release_primary_context, "cuDevicePrimaryCtxRelease_v2");
  library.require(table.current_context, "cuCtxGetCurrent");
  library.require(table.set_current_context, "cuCtxSetCurrent");
  library.require(table.create_stream, "cuStreamCreateWithPriority");
  library.require(table.priority_range, "cuCtxGetStreamPriorityRange");
  library.require(table.destroy_stream, "cuStreamDestroy_v2");
  library.require(table.query_stream, "cuStreamQuery");
  library.require(table.wait_event, "cuStreamWaitEvent");
  library.require(table.create_event, "cuEventCreate");
  library.require(table.destroy_event, "cuEventDestroy_v2");
  library.require(table.record_event, "cuEventRecord");
  library.accept(table.record_all_streams, "cuCtxRecordEvent");
  library.require(table.query_event, "cuEventQuery");
  library.require(table.allocate, "cuMemAlloc_v2");
  library.require(table.free, "cuMemFree_v2");
  library.require(table.allocate_host, "cuMemAllocHost_v2");
  library.require(table.free_host, "cuMemFreeHost");
  library.require(table.copy_in, "cuMemcpyHtoDAsync_v2");
  library.require(table.copy_out, "cuMemcpyDtoHAsync_v2");
  library.require(table.load_module, "cuModuleLoadData");
  library.require(table.unload_module, "cuModuleUnload");
  library.require(table.function, "cuModuleGetFunction");
  library.require(table.launch, "cuLaunchKernel");
  return table;
}

DynamicLibrary open_driver(const std::string& library) {
  try {
    return DynamicLibrary::open(library.empty() ? "libcuda.so.1" : library);
  } catch (const Unsupported& error) {
    throw Unsupported(std::string("there is no CUDA driver: ") + error.what());
  }
}

}  // namespace

Driver::Driver(const std::string& library) : library_(open_driver(library)), table_(functions_of(library_)) {
  // The usual error on a machine with an installed driver but without a GPU.
  if (const Result result = table_.init(0); result != kSuccess) {
    throw Unsupported("the CUDA driver does not start (cuInit: " + std::to_string(result) + "): is there a GPU?");
  }
  check(table_.driver_version(&version_), "cuDriverGetVersion");
  check(table_.device_count(&devices_), "cuDeviceGetCount");
}

Driver::~Driver() {
  for (const auto& [device, context] : contexts_) {
    Device handle = 0;
    if (table_.device(&handle, device) == kSuccess) table_.release_primary_context(handle);
  }
}

void Driver::check(Result result, const char* what) const {
  if (result == kSuccess) return;
  const char* name = nullptr;
  const char* text = nullptr;
  if (table_.error_name != nullptr) table_.error_name(result, &name);
  if (table_.error_text != nullptr) table_.error_text(result, &text);
  throw Aborted(std::string("CUDA: ") + what + ": " + (name != nullptr ? name : "error " + std::to_string(result)) +
                (text != nullptr ? " (" + std::string(text) + ")" : ""));
}

std::string Driver::describe() const {
  return library_.file_of(reinterpret_cast<const void*>(table_.init)) + ", CUDA " + std::to_string(version_ / 1000) +
         "." + std::to_string(version_ % 1000 / 10) + ", " + std::to_string(devices_) +
         (devices_ == 1 ? " device" : " devices");
}

Context Driver::context(int device) {
  const std::lock_guard lock(mutex_);
  if (const auto known = contexts_.find(device); known != contexts_.end()) return known->second;
  if (device < 0 || device >= devices_) {
    throw InvalidArgument("there is no GPU " + std::to_string(device) + "; this process sees " +
                          std::to_string(devices_));
  }
  Device handle = 0;
  check(table_.device(&handle, device), "cuDeviceGet");
  Context context = nullptr;
  check(table_.retain_primary_context(&context, handle), "cuDevicePrimaryCtxRetain");
  contexts_.emplace(device, context);
  return context;
}

ContextScope::ContextScope(Driver& driver, int device) : driver_(driver) {
  const Context own = driver.context(device);
  driver.check(driver.call().current_context(&before_), "cuCtxGetCurrent");
  driver.check(driver.call().set_current_context(own), "cuCtxSetCurrent");
}

ContextScope::~ContextScope() { driver_.call().set_current_context(before_); }

}  // namespace hvd::cuda
