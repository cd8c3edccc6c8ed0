// The part of the CUDA driver's binary interface that hvd calls, declared independently: hvd builds without CUDA
// headers, and starts without CUDA. Names are those of the symbols without "cu"; numbers are those of CUDA 11 and
// later, which do not change.
#pragma once

#include <cstddef>

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

inline constexpr unsigned kNonBlockingStream = 1;  // does not wait for the default stream
inline constexpr unsigned kEventWithoutTiming = 2;

// The driver's functions, by symbol.
struct DriverTable {
  Result (*init)(unsigned flags);                                         // cuInit
  Result (*driver_version)(int* version);                                 // cuDriverGetVersion; 12040 is 12.4
  Result (*error_name)(Result result, const char** text);                 // cuGetErrorName
  Result (*error_text)(Result result, const char** text);                 // cuGetErrorString
  Result (*device_count)(int* count);                                     // cuDeviceGetCount
  Result (*device)(Device* device, int ordinal);                          // cuDeviceGet
  Result (*retain_primary_context)(Context* context, Device device);      // cuDevicePrimaryCtxRetain
  Result (*release_primary_context)(Device device);                       // cuDevicePrimaryCtxRelease_v2
  Result (*current_context)(Context* context);                            // cuCtxGetCurrent
  Result (*set_current_context)(Context context);                         // cuCtxSetCurrent
  Result (*create_stream)(Stream* stream, unsigned flags, int priority);  // cuStreamCreateWithPriority
  Result (*priority_range)(int* least, int* greatest);                    // cuCtxGetStreamPriorityRange
  Result (*destroy_stream)(Stream stream);                                // cuStreamDestroy_v2
  Result (*query_stream)(Stream stream);                                  // cuStreamQuery
  Result (*wait_event)(Stream stream, Event event, unsigned flags);       // cuStreamWaitEvent
  Result (*create_event)(Event* event, unsigned flags);                   // cuEventCreate
  Result (*destroy_event)(Event event);                                   // cuEventDestroy_v2
  Result (*record_event)(Event event, Stream stream);                     // cuEventRecord
  Result (*record_all_streams)(Context context, Event event);             // cuCtxRecordEvent; CUDA 12.5, else null
  Result (*query_event)(Event event);                                     // cuEventQuery
  Result (*allocate)(Address* address, std::size_t bytes);                // cuMemAlloc_v2
  Result (*free)(Address address);                                        // cuMemFree_v2
  Result (*allocate_host)(void** memory, std::size_t bytes);              // cuMemAllocHost_v2; pinned
  Result (*free_host)(void* memory);                                      // cuMemFreeHost
  Result (*copy_in)(Address to, const void* from, std::size_t, Stream);   // cuMemcpyHtoDAsync_v2
  Result (*copy_out)(void* to, Address from, std::size_t, Stream);        // cuMemcpyDtoHAsync_v2
  Result (*load_module)(Module* module, const void* image);               // cuModuleLoadData
  Result (*unload_module)(Module module);                                 // cuModuleUnload
  Result (*function)(Function* function, Module module, const char*);     // cuModuleGetFunction
  Result (*launch)(Function function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                   unsigned block_y, unsigned block_z, unsigned shared_bytes, Stream, void** parameters,
                   void** extra);  // cuLaunchKernel
};

}  // namespace hvd::cuda
