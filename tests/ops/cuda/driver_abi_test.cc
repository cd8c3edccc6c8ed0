// Compares ops/cuda/driver_abi.h with CUDA's cuda.h: whoever compiles this has tested it.
#include "ops/cuda/driver_abi.h"

#include HVD_VENDOR_HEADER

#include <cstddef>
#include <iterator>

#include "tests/support/same_abi.h"

namespace hvd::testing {

namespace {

using Words = Glossary<Word<CUresult, cuda::Result>, Word<CUcontext, cuda::Context>, Word<CUstream, cuda::Stream>,
                       Word<CUevent, cuda::Event>, Word<CUmodule, cuda::Module>, Word<CUfunction, cuda::Function>>;

static_assert(CUDA_VERSION >= 12050, "cuCtxRecordEvent is of CUDA 12.5");

#define HVD_SAME(member, symbol) \
  same_abi<Words, decltype(symbol), std::remove_pointer_t<decltype(cuda::DriverTable::member)>>
constexpr bool kSame[] = {
    HVD_SAME(init, cuInit),
    HVD_SAME(driver_version, cuDriverGetVersion),
    HVD_SAME(error_name, cuGetErrorName),
    HVD_SAME(error_text, cuGetErrorString),
    HVD_SAME(device_count, cuDeviceGetCount),
    HVD_SAME(device, cuDeviceGet),
    HVD_SAME(retain_primary_context, cuDevicePrimaryCtxRetain),
    HVD_SAME(release_primary_context, cuDevicePrimaryCtxRelease_v2),
    HVD_SAME(current_context, cuCtxGetCurrent),
    HVD_SAME(set_current_context, cuCtxSetCurrent),
    HVD_SAME(create_stream, cuStreamCreateWithPriority),
    HVD_SAME(priority_range, cuCtxGetStreamPriorityRange),
    HVD_SAME(destroy_stream, cuStreamDestroy_v2),
    HVD_SAME(query_stream, cuStreamQuery),
    HVD_SAME(wait_event, cuStreamWaitEvent),
    HVD_SAME(create_event, cuEventCreate),
    HVD_SAME(destroy_event, cuEventDestroy_v2),
    HVD_SAME(record_event, cuEventRecord),
    HVD_SAME(record_all_streams, cuCtxRecordEvent),
    HVD_SAME(query_event, cuEventQuery),
    HVD_SAME(allocate, cuMemAlloc_v2),
    HVD_SAME(free, cuMemFree_v2),
    HVD_SAME(allocate_host, cuMemAllocHost_v2),
    HVD_SAME(free_host, cuMemFreeHost),
    HVD_SAME(copy_in, cuMemcpyHtoDAsync_v2),
    HVD_SAME(copy_out, cuMemcpyDtoHAsync_v2),
    HVD_SAME(load_module, cuModuleLoadData),
    HVD_SAME(unload_module, cuModuleUnload),
    HVD_SAME(function, cuModuleGetFunction),
    HVD_SAME(launch, cuLaunchKernel),
};
#undef HVD_SAME
constexpr std::size_t differing() {
  for (std::size_t i = 0; i < std::size(kSame); ++i) {
    if (!kSame[i]) return i + 1;
  }
  return 0;
}
static_assert(differing() == 0, "a function, of this number in the list, has another signature");
static_assert(std::size(kSame) == sizeof(cuda::DriverTable) / sizeof(void (*)()), "a function is not compared");

static_assert(std::is_same_v<CUdevice, cuda::Device> && std::is_same_v<CUdeviceptr, cuda::Address>);
static_assert(CUDA_SUCCESS == cuda::kSuccess && CUDA_ERROR_NOT_READY == cuda::kNotReady);
static_assert(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED == cuda::kCaptureUnsupported);
static_assert(CU_STREAM_NON_BLOCKING == cuda::kNonBlockingStream &&
              CU_EVENT_DISABLE_TIMING == cuda::kEventWithoutTiming);

}  // namespace

}  // namespace hvd::testing
