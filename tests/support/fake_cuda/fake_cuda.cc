// The driver's symbols. See fake_cuda.h.
#include "tests/support/fake_cuda/fake_cuda.h"

#include <dlfcn.h>

#include <array>
#include <map>
#include <string>
#include <vector>

#include "ops/gpu/cuda_driver.h"
#include "tests/support/fake_cuda/fake_memory.h"
#include "tests/support/fake_cuda/fake_stream.h"
#include "tests/support/fake_cuda/injections.h"
#include "tests/support/fake_cuda/kernels.h"

#define HVD_FAKE extern "C" __attribute__((visibility("default")))

namespace {

using namespace hvd::testing;
using hvd::cuda::Address;

constexpr int kDevices = 8;
constexpr int kInvalidValue = 1, kInvalidContext = 201, kInvalidHandle = 400, kNotFound = 500, kIllegalAddress = 700;
constexpr int kCaptureUnsupported = hvd::cuda::kCaptureUnsupported, kUnjoined = 904, kIsolation = 905, kCaptured = 907;
constexpr int kNotReady = hvd::cuda::kNotReady;

struct Device {
  int ordinal = 0;
  std::atomic<bool> failed{false};
  std::mutex mutex;
  std::shared_ptr<FakeStream> default_stream;  // guarded by mutex; made when it is first used
};

struct Driver {
  Driver() {
    for (int i = 0; i < kDevices; ++i) devices[static_cast<std::size_t>(i)].ordinal = i;
  }
  std::array<Device, kDevices> devices;
  FakeMemory memory;
  Injections injections;
  std::mutex mutex;
  std::map<void*, std::shared_ptr<FakeStream>> streams;  // guarded by mutex
  unsigned seed = 1;                                     // guarded by mutex, as the next ones
  int longest_delay_us = 100;
  unsigned long long made_streams = 0;
  std::atomic<int> modules{0}, events{0}, captures{0};
};

struct FakeFunction {
  std::string name;
  FakeKernel kernel;
};

struct FakeModule {
  std::map<std::string, FakeFunction> functions;
};

// Never destroyed: default streams have threads.
Driver& driver() {
  static auto* const one = new Driver;
  return *one;
}

thread_local Device* current = nullptr;
thread_local int capture_mode = 0;

// What a call returns at once: an injected failure, or that its device has failed, or that there is none.
int refusal(const char* function) {
  if (const int injected = driver().injections.of(function, current != nullptr ? current->ordinal : -1)) {
    return injected;
  }
  if (current == nullptr) return kInvalidContext;
  return current->failed ? kIllegalAddress : 0;
}

// Of calls that may not be made while any thread captures, unless the caller's mode is relaxed.
int unsafe_refusal(const char* function) {
  if (driver().captures > 0 && capture_mode != hvd::cuda::kRelaxedCapture) return kCaptureUnsupported;
  return refusal(function);
}

std::shared_ptr<FakeStream> make_stream(int device) {
  const std::lock_guard lock(driver().mutex);
  return std::make_shared<FakeStream>(device, ++driver().made_streams, ++driver().seed, driver().longest_delay_us);
}

std::shared_ptr<FakeStream> find(void* stream) {
  if (stream == nullptr) {
    const std::lock_guard lock(current->mutex);
    if (!current->default_stream) current->default_stream = make_stream(current->ordinal);
    return current->default_stream;
  }
  const std::lock_guard lock(driver().mutex);
  const auto found = driver().streams.find(stream);
  const bool fits = found != driver().streams.end() && found->second->device() == current->ordinal;
  return fits ? found->second : nullptr;
}

std::vector<std::shared_ptr<FakeStream>> streams_of(Device& device) {
  std::vector<std::shared_ptr<FakeStream>> streams;
  {
    const std::lock_guard lock(device.mutex);
    if (device.default_stream) streams.push_back(device.default_stream);
  }
  const std::lock_guard lock(driver().mutex);
  for (const auto& [handle, stream] : driver().streams) {
    if (stream->device() == device.ordinal) streams.push_back(stream);
  }
  return streams;
}

// In a stream: a task that touches the device's memory.
int put_access(const char* function, void* stream, const void* memory, std::size_t bytes, std::function<void()> task) {
  if (const int result = refusal(function)) return result;
  const auto target = find(stream);
  if (target == nullptr) return kInvalidHandle;
  Device* const device = current;
  if (!driver().memory.holds(device->ordinal, memory, bytes)) return kInvalidValue;
  target->put([device, memory, bytes, task = std::move(task)] {
    if (device->failed) return;
    if (driver().memory.holds(device->ordinal, memory, bytes)) return task();
    device->failed = true;  // it was freed meanwhile
  });
  return 0;
}

void* pointer(Address address) { return reinterpret_cast<void*>(address); }

struct FakeEvent {
  std::mutex mutex;
  std::shared_ptr<FakeRecord> latest;  // guarded by mutex; null: never recorded, which counts as happened

  std::shared_ptr<FakeRecord> record() {
    auto made = std::make_shared<FakeRecord>();
    const std::lock_guard lock(mutex);
    return latest = made;
  }
  std::shared_ptr<FakeRecord> now() {
    const std::lock_guard lock(mutex);
    return latest;
  }
};

// The stream belongs to the capture from now on, and that of the event need not be waited for by others.
int join(FakeStream& stream, const FakeRecord& record) {
  const auto own = stream.capture();
  if (own && own != record.captured) return kIsolation;
  const std::lock_guard lock(record.captured->mutex);
  if (record.stream != record.captured->first) record.captured->joined[record.stream] = true;
  if (own) return 0;
  record.captured->joined[&stream] = false;
  stream.set_capture(record.captured);
  return 0;
}

void happen(FakeRecord& record) {
  const std::lock_guard lock(record.mutex);
  record.happened = true;
  record.changed.notify_all();
}

}  // namespace

HVD_FAKE int cuInit(unsigned) { return driver().injections.of("cuInit", -1); }
HVD_FAKE int cuDriverGetVersion(int* version) { return *version = HVD_FAKE_CUDA_VERSION, 0; }
HVD_FAKE int cuGetErrorName(int result, const char** name) {
  *name = result == kIllegalAddress ? "CUDA_ERROR_ILLEGAL_ADDRESS" : "CUDA_ERROR_OF_THE_FAKE";
  return 0;
}
HVD_FAKE int cuGetErrorString(int, const char** text) { return *text = "an error of the fake driver", 0; }
HVD_FAKE int cuDeviceGetCount(int* count) { return *count = kDevices, 0; }
HVD_FAKE int cuDeviceGet(int* device, int ordinal) {
  if (ordinal < 0 || ordinal >= kDevices) return kInvalidValue;
  return *device = ordinal, 0;
}
HVD_FAKE int cuDevicePrimaryCtxRetain(void** context, int device) {
  if (const int injected = driver().injections.of("cuDevicePrimaryCtxRetain", device)) return injected;
  return *context = &driver().devices[static_cast<std::size_t>(device)], 0;
}
HVD_FAKE int cuDevicePrimaryCtxRelease_v2(int) { return 0; }
// Not counted: it reads a variable of the thread.
HVD_FAKE int cuCtxGetCurrent(void** context) { return *context = current, 0; }
HVD_FAKE int cuCtxSetCurrent(void* context) {
  current = static_cast<Device*>(context);
  return driver().injections.of("cuCtxSetCurrent", -1);
}
HVD_FAKE int cuCtxGetDevice(int* device) {
  if (current == nullptr) return kInvalidContext;
  return *device = current->ordinal, 0;
}
HVD_FAKE int cuCtxGetStreamPriorityRange(int* least, int* greatest) { return *least = 0, *greatest = -5, 0; }

HVD_FAKE int cuStreamCreateWithPriority(void** stream, unsigned, int) {
  if (const int result = refusal("cuStreamCreateWithPriority")) return result;
  auto made = make_stream(current->ordinal);
  const std::lock_guard lock(driver().mutex);
  *stream = made.get();
  driver().streams.emplace(made.get(), made);
  return 0;
}

HVD_FAKE int cuStreamDestroy_v2(void* stream) {
  if (const int result = refusal("cuStreamDestroy_v2"); result != 0 && result != kIllegalAddress) return result;
  const auto ended = find(stream);  // its thread ends when nobody holds the mutex
  const std::lock_guard lock(driver().mutex);
  return driver().streams.erase(stream) == 1 ? 0 : kInvalidHandle;
}

HVD_FAKE int cuStreamQuery(void* stream) {
  if (const int result = unsafe_refusal("cuStreamQuery")) return result;
  const auto target = find(stream);
  if (target == nullptr) return kInvalidHandle;
  if (target->capture()) return kCaptureUnsupported;
  return target->idle() ? 0 : kNotReady;
}

HVD_FAKE int cuStreamGetId(void* stream, unsigned long long* id) {
  if (const int result = refusal("cuStreamGetId")) return result;
  const auto target = find(stream);
  if (target == nullptr) return kInvalidHandle;
  return *id = target->id(), 0;
}

HVD_FAKE int cuStreamIsCapturing(void* stream, int* status) {
  if (const int result = refusal("cuStreamIsCapturing")) return result;
  const auto target = find(stream);
  if (target == nullptr) return kInvalidHandle;
  return *status = target->capture() ? 1 : 0, 0;
}

HVD_FAKE int cuThreadExchangeStreamCaptureMode(int* mode) {
  std::swap(*mode, capture_mode);
  return 0;
}

HVD_FAKE int cuStreamBeginCapture_v2(void* stream, int) {
  if (const int result = refusal("cuStreamBeginCapture_v2")) return result;
  const auto target = find(stream);
  if (target == nullptr || target->capture()) return kInvalidHandle;
  auto graph = std::make_shared<FakeGraph>();
  graph->first = target.get();
  target->set_capture(std::move(graph));
  ++driver().captures;
  return 0;
}

// Ends it in all of its streams. The caller owns the graph, if there is one.
HVD_FAKE int cuStreamEndCapture(void* stream, void** made) {
  const auto target = find(stream);
  const auto graph = target == nullptr ? nullptr : target->capture();
  if (graph == nullptr || graph->first != target.get()) return kInvalidValue;
  --driver().captures;
  const std::lock_guard lock(graph->mutex);
  bool all_joined = true;
  target->set_capture(nullptr);
  for (const auto& [other, joined] : graph->joined) {
    other->set_capture(nullptr);
    all_joined = all_joined && joined;
  }
  *made = all_joined ? new std::shared_ptr<FakeGraph>(graph) : nullptr;
  return all_joined ? 0 : kUnjoined;
}

HVD_FAKE int cuGraphLaunch(void* graph, void* stream) {
  if (const int result = refusal("cuGraphLaunch")) return result;
  const auto target = find(stream);
  if (target == nullptr) return kInvalidHandle;
  target->put([own = *static_cast<std::shared_ptr<FakeGraph>*>(graph)] {
    for (const auto& task : own->tasks) task();
  });
  return 0;
}

HVD_FAKE int cuGraphDestroy(void* graph) {
  delete static_cast<std::shared_ptr<FakeGraph>*>(graph);
  return 0;
}

HVD_FAKE int cuEventCreate(void** event, unsigned) {
  if (const int result = refusal("cuEventCreate")) return result;
  ++driver().events;
  return *event = new FakeEvent, 0;
}

HVD_FAKE int cuEventDestroy_v2(void* event) {
  --driver().events;
  delete static_cast<FakeEvent*>(event);
  return 0;
}

HVD_FAKE int cuEventRecord(void* event, void* stream) {
  if (const int result = refusal("cuEventRecord")) return result;
  const auto target = find(stream);
  if (target == nullptr) return kInvalidHandle;
  const auto record = static_cast<FakeEvent*>(event)->record();
  if (const auto graph = target->capture()) {
    record->captured = graph;
    record->stream = target.get();
    return 0;
  }
  target->put([record] { happen(*record); });
  return 0;
}

#if HVD_FAKE_CUDA_VERSION >= 12050
HVD_FAKE int cuCtxRecordEvent(void* context, void* event) {
  if (const int result = unsafe_refusal("cuCtxRecordEvent")) return result;
  auto* const device = static_cast<Device*>(context);
  const std::vector<std::shared_ptr<FakeStream>> streams = streams_of(*device);
  const auto record = static_cast<FakeEvent*>(event)->record();
  if (streams.empty()) happen(*record);
  const auto open = std::make_shared<std::atomic<std::size_t>>(streams.size());
  for (const auto& stream : streams) {
    stream->put([record, open] {
      if (--*open == 0) happen(*record);
    });
  }
  return 0;
}
#endif

HVD_FAKE int cuEventQuery(void* event) {
  if (const int result = unsafe_refusal("cuEventQuery")) return result;
  const auto record = static_cast<FakeEvent*>(event)->now();
  if (record == nullptr) return 0;
  if (record->captured) return kCaptured;
  const std::lock_guard lock(record->mutex);
  return record->happened ? 0 : kNotReady;
}

HVD_FAKE int cuStreamWaitEvent(void* stream, void* event, unsigned) {
  if (const int result = refusal("cuStreamWaitEvent")) return result;
  const auto target = find(stream);
  if (target == nullptr) return kInvalidHandle;
  const auto record = static_cast<FakeEvent*>(event)->now();
  if (record == nullptr) return 0;
  if (record->captured) return join(*target, *record);
  if (target->capture()) return kIsolation;
  target->put([record] {
    std::unique_lock lock(record->mutex);
    record->changed.wait(lock, [&] { return record->happened; });
  });
  return 0;
}

HVD_FAKE int cuMemAlloc_v2(Address* address, std::size_t bytes) {
  if (const int result = unsafe_refusal("cuMemAlloc_v2")) return result;
  if (bytes == 0) return kInvalidValue;
  return *address = reinterpret_cast<Address>(driver().memory.allocate(current->ordinal, bytes)), 0;
}

// Waits for the device, as the driver does.
HVD_FAKE int cuMemFree_v2(Address address) {
  if (const int result = refusal("cuMemFree_v2"); result != 0 && result != kIllegalAddress) return result;
  for (const auto& stream : streams_of(*current)) stream->drain();
  if (address != 0 && !driver().memory.free(pointer(address))) return kInvalidValue;
  return 0;
}

HVD_FAKE int cuMemAllocHost_v2(void** memory, std::size_t bytes) {
  if (const int result = refusal("cuMemAllocHost_v2")) return result;
  *memory = std::malloc(bytes);
  std::memset(*memory, kFreshPoison, bytes);
  return 0;
}

HVD_FAKE int cuMemFreeHost(void* memory) {
  std::free(memory);
  return 0;
}

HVD_FAKE int cuMemcpyHtoDAsync_v2(Address to, const void* from, std::size_t bytes, void* stream) {
  return put_access("cuMemcpyHtoDAsync_v2", stream, pointer(to), bytes, [=] { std::memcpy(pointer(to), from, bytes); });
}

HVD_FAKE int cuMemcpyDtoHAsync_v2(void* to, Address from, std::size_t bytes, void* stream) {
  return put_access("cuMemcpyDtoHAsync_v2", stream, pointer(from), bytes,
                    [=] { std::memcpy(to, pointer(from), bytes); });
}

// A module is an image, whatever is in it: its functions are those of kernels.cc.
HVD_FAKE int cuModuleLoadData(void** module, const void* image) {
  if (const int result = refusal("cuModuleLoadData")) return result;
  if (image == nullptr) return kInvalidValue;
  *module = new FakeModule;
  ++driver().modules;
  return 0;
}

HVD_FAKE int cuModuleUnload(void* module) {
  if (current == nullptr) return kInvalidContext;
  delete static_cast<FakeModule*>(module);
  --driver().modules;
  return 0;
}

HVD_FAKE int cuModuleGetFunction(void** function, void* module, const char* name) {
  if (const int result = refusal("cuModuleGetFunction")) return result;
  Dl_info own{};
  dladdr(reinterpret_cast<const void*>(&cuInit), &own);
  void* const library = dlopen(own.dli_fname, RTLD_NOW | RTLD_NOLOAD);
  auto* const kernel = reinterpret_cast<FakeKernel>(dlsym(library, name));
  dlclose(library);
  if (kernel == nullptr) return kNotFound;
  auto& functions = static_cast<FakeModule*>(module)->functions;
  *function = &functions.try_emplace(name, FakeFunction{name, kernel}).first->second;
  return 0;
}

HVD_FAKE int cuLaunchKernel(void* function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                            unsigned block_y, unsigned block_z, unsigned, void* stream, void** parameters, void**) {
  if (const int result = refusal("cuLaunchKernel")) return result;
  if (grid_z != 1 || block_y != 1 || block_z != 1 || grid_x * block_x == 0 || grid_y == 0) return kInvalidValue;
  const auto target = find(stream);
  if (target == nullptr) return kInvalidHandle;
  const auto& [name, kernel] = *static_cast<const FakeFunction*>(function);
  const FakeLaunch launch(kernel, name, *static_cast<const hvd::cuda::BucketTable*>(parameters[0]),
                          static_cast<int>(grid_y), std::int64_t{grid_x} * block_x);
  target->put([device = current, launch] {
    if (device->failed) return;
    for (const auto& [memory, bytes] : launch.accesses()) {
      if (!driver().memory.holds(device->ordinal, memory, bytes)) device->failed = true;
    }
    if (!device->failed) launch.run();
  });
  return 0;
}

// Beyond the driver's: for the fake NCCL and for tests.

HVD_FAKE int fake_cuda_launch(void* stream, const std::function<void()>* task) {
  if (current == nullptr) return kInvalidContext;
  const auto target = find(stream);
  if (target == nullptr) return kInvalidHandle;
  target->put(*task);
  return 0;
}

HVD_FAKE int fake_cuda_drain(void* stream) {
  if (current == nullptr) return kInvalidContext;
  const auto target = find(stream);
  if (target == nullptr) return kInvalidHandle;
  target->drain();
  return 0;
}

HVD_FAKE int fake_cuda_use_device(int device) {
  current = &driver().devices[static_cast<std::size_t>(device)];
  return 0;
}

// Whether the memory is there; if not, the device has failed.
HVD_FAKE int fake_cuda_touch(int device, const void* memory, std::size_t bytes) {
  if (driver().memory.holds(device, memory, bytes)) return 1;
  driver().devices[static_cast<std::size_t>(device)].failed = true;
  return 0;
}

HVD_FAKE void fake_cuda_inject(const char* function, int device, int after, int result) {
  driver().injections.add(function, device, after, result);
}

HVD_FAKE void fake_cuda_reset(unsigned seed, int longest_delay_us) {
  driver().injections.clear();
  for (Device& device : driver().devices) device.failed = false;
  driver().captures = 0;
  const std::lock_guard lock(driver().mutex);
  driver().seed = seed;
  driver().longest_delay_us = longest_delay_us;
}

HVD_FAKE int fake_cuda_calls(const char* prefix) { return driver().injections.calls(prefix); }

HVD_FAKE int fake_cuda_live_events() { return driver().events; }

HVD_FAKE int fake_cuda_live_blocks() { return driver().memory.blocks(); }

HVD_FAKE int fake_cuda_live_modules() { return driver().modules; }

HVD_FAKE int fake_cuda_live_streams() {
  const std::lock_guard lock(driver().mutex);
  return static_cast<int>(driver().streams.size());
}
