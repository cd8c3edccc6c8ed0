// A CUDA driver without a GPU: what the tests say to the library that ops/gpu opens in its place.
//
// fake_cuda.cc is built into a shared library with the driver's symbols. Its devices are memory of this process. A
// stream is a thread that performs what was put into it one after the other, each after a random delay, so that whoever
// reads before he may is soon found out: fresh and freed memory hold poison, and a copy or a collective in memory
// that is not there, or of another device, fails the device for good, as an illegal address does. While a stream is
// captured, what the driver forbids is refused, to all threads whose mode is not relaxed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace hvd::testing {

// Functions of the library, found by dlsym; see fake_gpu.h for what tests call.
struct FakeCudaControls {
  // The call number `after` + 1 of `function` from now on, and all later ones, return `result`. `device`: only while it
  // is current; -1: any.
  void (*inject)(const char* function, int device, int after, int result);
  // No injection any more, no failed device; delays from `seed`, at most so long.
  void (*reset)(unsigned seed, int longest_delay_us);
  // Calls since reset() of the driver's functions whose names begin so.
  int (*calls)(const char* prefix);
  // Puts a task into a stream.
  int (*launch)(void* stream, const std::function<void()>* task);
  // Waits until the stream is empty.
  int (*drain)(void* stream);
  // Makes the device's context current.
  int (*use_device)(int device);
  // Blocks of device memory, streams, modules and events that were not given back.
  int (*live_blocks)();
  int (*live_streams)();
  int (*live_modules)();
  int (*live_events)();
};

constexpr std::uint8_t kFreshPoison = 0xa5, kFreedPoison = 0xde;

}  // namespace hvd::testing
