#include "ops/gpu/cuda_driver.h"

#include <bit>
#include <optional>

#include "core/base/error.h"

namespace hvd::cuda {

namespace {

DynamicLibrary open_driver(const std::string& library) {
  try {
    return DynamicLibrary::open(library.empty() ? "libcuda.so.1" : library);
  } catch (const Unsupported& error) {
    throw Unsupported(std::string("there is no CUDA driver: ") + error.what());
  }
}

}  // namespace

Driver::Driver(const std::string& library) : library_(open_driver(library)) {
  // The usual error on a machine with an installed driver but without a GPU.
  if (const Result result = table_.process.init(0); result != kSuccess) {
    throw Unsupported("the CUDA driver does not start (cuInit: " + std::to_string(result) + "): is there a GPU?");
  }
  check(table_.process.version(&version_), "cuDriverGetVersion");
  check(table_.process.device_count(&devices_), "cuDeviceGetCount");
}

Driver::~Driver() {
  for (const auto& [device, primary] : primaries_) {
    try {
      const ContextScope context(*this, device);
      for (const Event event : primary.idle) table_.events.destroy(event);
    } catch (...) {  // a failed driver has nothing to release
    }
    Device handle = 0;
    if (table_.contexts.device(&handle, device) == kSuccess) table_.contexts.release_primary(handle);
  }
}

void Driver::check(Result result, const char* what) const {
  if (result == kSuccess) return;
  const char* name = nullptr;
  const char* text = nullptr;
  if (table_.process.error_name != nullptr) table_.process.error_name(result, &name);
  if (table_.process.error_text != nullptr) table_.process.error_text(result, &text);
  throw Aborted(std::string("CUDA: ") + what + ": " + (name != nullptr ? name : "error " + std::to_string(result)) +
                (text != nullptr ? " (" + std::string(text) + ")" : ""));
}

std::string Driver::describe() const {
  return library_.file_of(reinterpret_cast<const void*>(table_.process.init)) + ", CUDA " +
         std::to_string(version_ / 1000) + "." + std::to_string(version_ % 1000 / 10) + ", " +
         std::to_string(devices_) + (devices_ == 1 ? " device" : " devices");
}

Context Driver::context(int device) {
  const MutexLock lock(mutex_);
  if (const auto known = primaries_.find(device); known != primaries_.end()) return known->second.context;
  if (device < 0 || device >= devices_) {
    throw InvalidArgument("there is no GPU " + std::to_string(device) + "; this process sees " +
                          std::to_string(devices_));
  }
  Device handle = 0;
  check(table_.contexts.device(&handle, device), "cuDeviceGet");
  Context context = nullptr;
  check(table_.contexts.retain_primary(&context, handle), "cuDevicePrimaryCtxRetain");
  primaries_.emplace(device, Primary{.context = context, .idle = {}});
  return context;
}

Event Driver::take_event(int device) {
  {
    const MutexLock lock(mutex_);
    std::vector<Event>& idle = primaries_.at(device).idle;
    if (!idle.empty()) {
      const Event taken = idle.back();
      idle.pop_back();
      return taken;
    }
  }
  Event event = nullptr;
  check(table_.events.create(&event, kEventWithoutTiming), "cuEventCreate");
  return event;
}

void Driver::give_back(int device, Event event) noexcept {
  try {
    const MutexLock lock(mutex_);
    primaries_.at(device).idle.push_back(event);
  } catch (...) {  // there is no memory for the list
    table_.events.destroy(event);
  }
}

ContextScope::ContextScope(Driver& driver, int device) : driver_(driver) {
  const Context own = driver.context(device);
  driver.check(driver.call().contexts.current(&before_), "cuCtxGetCurrent");
  if (before_ == own) return;
  driver.check(driver.call().contexts.set_current(own), "cuCtxSetCurrent");
  switched_ = true;
}

ContextScope::~ContextScope() {
  if (switched_) driver_.call().contexts.set_current(before_);
}

namespace {

// CU_STREAM_PER_THREAD
Stream const kPerThreadStream = std::bit_cast<Stream>(std::uintptr_t{2});

// A point in the order of a device's work that is recorded once, in the constructor: behind what is in `stream`, or in
// all streams of the device's primary context (kAllStreams). Shares ownership of the driver.
class RecordedEvent final : public DeviceEvent {
 public:
  RecordedEvent(std::shared_ptr<Driver> driver, int device, Stream stream)
      : driver_(std::move(driver)), device_(device) {
    const ContextScope context(*driver_, device_);
    event_ = driver_->take_event(device_);
    try {
      record(stream);
    } catch (...) {
      driver_->give_back(device_, event_);
      throw;
    }
  }
  RecordedEvent(const RecordedEvent&) = delete;
  RecordedEvent& operator=(const RecordedEvent&) = delete;

  // A stream that waits for the event waits for what was recorded when the wait was enqueued; a later record does not
  // change that.
  ~RecordedEvent() override { driver_->give_back(device_, event_); }

  bool happened() const override {
    if (captured_) return true;
    const ContextScope context(*driver_, device_);
    const CaptureModeGuard relaxed(*driver_);
    const Result result = driver_->call().events.query(event_);
    if (result == kNotReady) return false;
    driver_->check(result, "cuEventQuery");
    return true;
  }

  void hold_up(void* stream) const override {
    const ContextScope context(*driver_, device_);
    driver_->check(driver_->call().streams.wait_event(static_cast<Stream>(stream), event_, 0), "cuStreamWaitEvent");
  }

  bool captured() const override { return captured_; }

  bool precedes(const DeviceEvent& other) const override {
    const auto* const later = dynamic_cast<const RecordedEvent*>(&other);
    return later != nullptr && stream_id_ && stream_id_ == later->stream_id_ && device_ == later->device_ &&
           driver_ == later->driver_ && after_ < later->before_;
  }

 private:
  void record(Stream stream) {
    if (stream == kAllStreams) return record_all_streams();
    find_id(stream);
    int capturing = 0;
    driver_->check(driver_->call().streams.is_capturing(stream, &capturing), "cuStreamIsCapturing");
    captured_ = capturing != 0;
    before_ = driver_->next_number();
    driver_->check(driver_->call().events.record(event_, stream), "cuEventRecord");
    after_ = driver_->next_number();
  }

  // A handle may be reused for a later stream or, like kPerThreadStream, stand for several; an id is never reused.
  void find_id(Stream stream) {
    const auto id_of = driver_->call().streams.id;
    if (id_of == nullptr || stream == kPerThreadStream) return;
    unsigned long long id = 0;
    const Result result = id_of(stream, &id);
    if (result == kCaptureUnsupported) refuse_capture();
    if (result == kSuccess) stream_id_ = id;
  }

  [[noreturn]] void refuse_capture() const {
    throw Unsupported(
        "a stream of GPU " + std::to_string(device_) +
        " is being captured into a graph, so that no operation can be ordered after all streams: pass the "
        "stream of the tensors instead");
  }

  void record_all_streams() const {
    const auto record = driver_->call().events.record_all_streams;
    if (record == nullptr) {
      throw Unsupported(
          "this CUDA driver cannot order an operation behind all streams of a GPU (cuCtxRecordEvent): install driver "
          "555 (CUDA 12.5) or later; or set HVD_GPU_THROUGH_HOST=1, and TensorFlow's tensors go through the host's "
          "memory");
    }
    const Result result = record(driver_->context(device_), event_);
    if (result == kCaptureUnsupported) refuse_capture();
    driver_->check(result, "cuCtxRecordEvent");
  }

  const std::shared_ptr<Driver> driver_;
  const int device_;
  Event event_ = nullptr;
  bool captured_ = false;
  std::optional<unsigned long long> stream_id_;  // empty: unknown, or of all streams
  std::uint64_t before_ = 0, after_ = 0;         // Driver::next_number() before and after it was recorded
};

}  // namespace

std::shared_ptr<const DeviceEvent> CudaDevices::record(int device, void* stream) {
  return std::make_shared<RecordedEvent>(driver(), device, static_cast<Stream>(stream));
}

std::shared_ptr<void> CudaDevices::allocate(int device, std::size_t bytes) {
  if (bytes == 0) return nullptr;
  std::shared_ptr<Driver> own = driver();
  Address address = 0;
  {
    const ContextScope context(*own, device);
    const CaptureModeGuard relaxed(*own);
    own->check(own->call().memory.allocate(&address, bytes), "cuMemAlloc");
  }
  return {std::bit_cast<void*>(address), [own, device, address](void*) {
            try {
              const ContextScope context(*own, device);
              own->call().memory.free(address);
            } catch (...) {  // a failed driver has nothing to release
            }
          }};
}

std::shared_ptr<Driver> CudaDevices::driver() {
  const MutexLock lock(mutex_);
  if (!driver_) driver_ = std::make_shared<Driver>(library_);
  return driver_;
}

}  // namespace hvd::cuda
