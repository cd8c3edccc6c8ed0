#include "ops/gpu/through_host.h"

#include <sched.h>

#include <thread>
#include <utility>

#include "core/base/error.h"
#include "core/tensor/tensor.h"

namespace hvd::cuda {

namespace {

constexpr std::size_t kAlignment = 64;
constexpr int kPollsBeforeSleep = 100;
constexpr Duration kPollInterval = std::chrono::microseconds(50);

std::size_t aligned(std::size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

Address address_of(const void* memory) { return reinterpret_cast<Address>(memory); }

// Space for each piece of this rank: its input and its output, which may be the same.
struct Room {
  std::size_t input = 0, output = 0;
};

Room room_for(const CollectiveCall& call, std::size_t piece, std::size_t position) {
  Room room;
  const Piece& own = call.pieces[piece];
  if (own.input != nullptr) room.input = aligned(bytes_of(call.given(piece, position), call.dtype));
  const std::size_t received = aligned(bytes_of(call.received(piece, position), call.dtype));
  if (own.output != nullptr && (own.output != own.input || received > room.input)) room.output = received;
  return room;
}

class ThroughHost {
 public:
  ThroughHost(std::shared_ptr<CudaDevices> devices, ChooseBackend choose, Duration timeout, const AbortFlag& abort)
      : devices_(std::move(devices)), choose_(std::move(choose)), timeout_(timeout), abort_(abort) {}

  ~ThroughHost() {
    if (!driver_) return;
    try {
      const ContextScope context(*driver_, device_);
      if (stream_ != nullptr) driver_->call().streams.destroy(stream_);
      if (memory_ != nullptr) driver_->call().memory.free_host(memory_);
    } catch (...) {  // a failed driver has nothing to release
    }
  }

  ThroughHost(const ThroughHost&) = delete;
  ThroughHost& operator=(const ThroughHost&) = delete;

  void run(const CollectiveCall& call, int position) {
    const auto at = static_cast<std::size_t>(position);
    CollectiveCall on_host = call;
    on_host.device = kCpuDevice;
    on_host.ordinal = kCpuDevice;
    for (Piece& piece : on_host.pieces) piece.ready = nullptr;
    // A joined rank has no tensors on a device.
    if (call.ordinal < 0) return choose_(on_host).run(on_host);

    make_stream(call.ordinal);
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < call.pieces.size(); ++i) {
      const Room room = room_for(call, i, at);
      bytes += room.input + room.output;
    }
    const ContextScope context(*driver_, device_);
    std::byte* next = host_memory(bytes);
    for (std::size_t i = 0; i < call.pieces.size(); ++i) {
      const Room room = room_for(call, i, at);
      Piece& piece = on_host.pieces[i];
      if (piece.output != nullptr) piece.output = room.output == 0 ? next : next + room.input;
      if (piece.input != nullptr) piece.input = next;
      next += room.input + room.output;
    }
    copy_out(call, on_host, at);
    choose_(on_host).run(on_host);
    copy_in(call, on_host, at);
  }

 private:
  std::byte* host_memory(std::size_t bytes) {
    if (bytes > bytes_) {
      if (memory_ != nullptr) driver_->call().memory.free_host(std::exchange(memory_, nullptr));
      bytes_ = 0;
      driver_->check(driver_->call().memory.allocate_host(&memory_, bytes), "cuMemAllocHost");
      bytes_ = bytes;
    }
    return static_cast<std::byte*>(memory_);
  }

  void make_stream(int device) {
    if (!driver_) {
      driver_ = devices_->driver();
      device_ = device;
    }
    if (stream_ != nullptr) return;
    const ContextScope context(*driver_, device_);
    driver_->check(driver_->call().streams.create(&stream_, kNonBlockingStream, 0), "cuStreamCreateWithPriority");
  }

  void copy_out(const CollectiveCall& call, const CollectiveCall& on_host, std::size_t position) {
    for (std::size_t i = 0; i < call.pieces.size(); ++i) {
      const Piece& piece = call.pieces[i];
      if (piece.ready != nullptr) piece.ready->hold_up(stream_);
      const std::size_t bytes = bytes_of(call.given(i, position), call.dtype);
      if (piece.input == nullptr || bytes == 0) continue;
      driver_->check(driver_->call().memory.copy_out(const_cast<void*>(on_host.pieces[i].input),
                                                     address_of(piece.input), bytes, stream_),
                     "cuMemcpyDtoHAsync");
    }
    wait_for_stream("the program's work that produces the tensors");
  }

  void copy_in(const CollectiveCall& call, const CollectiveCall& on_host, std::size_t position) {
    for (std::size_t i = 0; i < call.pieces.size(); ++i) {
      const Piece& piece = call.pieces[i];
      const std::size_t bytes = bytes_of(call.received(i, position), call.dtype);
      if (piece.output == nullptr || bytes == 0) continue;
      driver_->check(driver_->call().memory.copy_in(address_of(piece.output), on_host.pieces[i].output, bytes, stream_),
                     "cuMemcpyHtoDAsync");
    }
    wait_for_stream("the copy of the results to the GPU");
  }

  void wait_for_stream(const char* what) const {
    const Deadline deadline = deadline_after(timeout_);
    for (int polls = 0;; ++polls) {
      const Result result = driver_->call().streams.query(stream_);
      if (result == kSuccess) return;
      if (result != kNotReady) driver_->check(result, "cuStreamQuery");
      abort_.check();
      if (Clock::now() >= deadline) {
        throw Timeout("GPU " + std::to_string(device_) + ": timed out waiting for " + what);
      }
      if (polls < kPollsBeforeSleep) {
        sched_yield();
      } else {
        std::this_thread::sleep_for(kPollInterval);
      }
    }
  }

  const std::shared_ptr<CudaDevices> devices_;
  const ChooseBackend choose_;
  const Duration timeout_;
  const AbortFlag& abort_;
  std::shared_ptr<Driver> driver_;  // null: not used yet
  int device_ = -1;
  Stream stream_ = nullptr;
  void* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

}  // namespace

ThroughHostMemory make_through_host(std::shared_ptr<CudaDevices> devices, ChooseBackend choose, Duration timeout,
                                    const AbortFlag& abort) {
  return [host = std::make_shared<ThroughHost>(std::move(devices), std::move(choose), timeout, abort)](
             const CollectiveCall& call, int position) { host->run(call, position); };
}

}  // namespace hvd::cuda
