// The part of MXNet's C API and of its engine that hvd uses, declared independently: hvd builds without MXNet's
// headers.
//
// Sources: include/mxnet/{c_api,engine,base,ndarray}.h in the wheel of MXNet 1.9.1.
#pragma once

#include <dlpack/dlpack.h>

#include <cstdint>
#include <stdexcept>

namespace hvd::mx {

struct NDArray;

// ndarray.h: NDArray begins with a shared pointer to its memory. Views of an array have the same, and with it one
// variable of the engine.
inline const void* memory_of(const NDArray* array) { return *reinterpret_cast<const void* const*>(array); }

// engine.h: CallbackOnComplete. `error` is a dmlc::Error, which adds nothing to std::runtime_error; it is copied. May
// be called from any thread, once.
struct OnComplete {
  void (*callback)(void* engine, void* parameter, const std::runtime_error* error);
  void* engine;
  void* parameter;
};

struct Context {
  std::int32_t device_type, device;
};
constexpr Context kCpu{1, 0};

// The engine calls an operation of this kind when its arrays are ready, and expects it to return at once.
enum class FnProperty : int { async = 4 };

using AsyncFunction = void (*)(void* run_context, void* on_complete, void* parameter);
using Deleter = void (*)(void* parameter);

// Functions of c_api.h, without "MX". They return 0, or -1 on failure: MXGetLastError() then returns the reason.
// EnginePushAsyncND calls `deleter` when it no longer needs the parameter, also if it fails.
struct CApi {
  int (*EnginePushAsyncND)(AsyncFunction function, void* parameter, Deleter deleter, const Context* context,
                           NDArray** constant, int constants, NDArray** changed, int changes,
                           const FnProperty* property, int priority, const char* name, bool wait);
  int (*NDArrayDetach)(NDArray* array, NDArray** result);
  int (*NDArrayFree)(NDArray* array);
  // Neither waits for the engine nor changes the array's memory layout: fails for arrays in a format of oneDNN.
  int (*NDArrayToDLPack)(NDArray* array, DLManagedTensor** result);
  const char* (*GetLastError)();  // of this thread
};

}  // namespace hvd::mx
