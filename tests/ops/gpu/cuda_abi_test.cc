// Compares ops/gpu/cuda_driver.h with CUDA's cuda.h: whoever compiles this has tested it.
#include "ops/gpu/cuda_driver.h"

#include HVD_VENDOR_HEADER

#include <cstddef>
#include <iterator>

#include "tests/support/same_abi.h"

namespace hvd::testing {

namespace {

using Words = Glossary<Word<CUresult, cuda::Result>, Word<CUcontext, cuda::Context>, Word<CUstream, cuda::Stream>,
                       Word<CUevent, cuda::Event>, Word<CUmodule, cuda::Module>, Word<CUfunction, cuda::Function>,
                       Word<CUstreamCaptureStatus, int>, Word<CUstreamCaptureMode, int>>;

static_assert(CUDA_VERSION >= 12050, "cuCtxRecordEvent is of CUDA 12.5");

#define HVD_SAME(member, symbol) same_abi<Words, decltype(symbol), std::remove_pointer_t<decltype(cuda::member)>>
constexpr bool kSame[] = {
    HVD_SAME(ProcessFunctions::init, cuInit),
    HVD_SAME(ProcessFunctions::version, cuDriverGetVersion),
    HVD_SAME(ProcessFunctions::error_name, cuGetErrorName),
    HVD_SAME(ProcessFunctions::error_text, cuGetErrorString),
    HVD_SAME(ProcessFunctions::device_count, cuDeviceGetCount),
    HVD_SAME(ContextFunctions::device, cuDeviceGet),
    HVD_SAME(ContextFunctions::retain_primary, cuDevicePrimaryCtxRetain),
    HVD_SAME(ContextFunctions::release_primary, cuDevicePrimaryCtxRelease_v2),
    HVD_SAME(ContextFunctions::current, cuCtxGetCurrent),
    HVD_SAME(ContextFunctions::set_current, cuCtxSetCurrent),
    HVD_SAME(StreamFunctions::create, cuStreamCreateWithPriority),
    HVD_SAME(StreamFunctions::priority_range, cuCtxGetStreamPriorityRange),
    HVD_SAME(StreamFunctions::destroy, cuStreamDestroy_v2),
    HVD_SAME(StreamFunctions::query, cuStreamQuery),
    HVD_SAME(StreamFunctions::wait_event, cuStreamWaitEvent),
    HVD_SAME(StreamFunctions::id, cuStreamGetId),
    HVD_SAME(StreamFunctions::is_capturing, cuStreamIsCapturing),
    HVD_SAME(StreamFunctions::exchange_capture_mode, cuThreadExchangeStreamCaptureMode),
    HVD_SAME(EventFunctions::create, cuEventCreate),
    HVD_SAME(EventFunctions::destroy, cuEventDestroy_v2),
    HVD_SAME(EventFunctions::record, cuEventRecord),
    HVD_SAME(EventFunctions::record_all_streams, cuCtxRecordEvent),
    HVD_SAME(EventFunctions::query, cuEventQuery),
    HVD_SAME(MemoryFunctions::allocate, cuMemAlloc_v2),
    HVD_SAME(MemoryFunctions::free, cuMemFree_v2),
    HVD_SAME(MemoryFunctions::allocate_host, cuMemAllocHost_v2),
    HVD_SAME(MemoryFunctions::free_host, cuMemFreeHost),
    HVD_SAME(MemoryFunctions::copy_in, cuMemcpyHtoDAsync_v2),
    HVD_SAME(MemoryFunctions::copy_out, cuMemcpyDtoHAsync_v2),
    HVD_SAME(ModuleFunctions::load, cuModuleLoadData),
    HVD_SAME(ModuleFunctions::unload, cuModuleUnload),
    HVD_SAME(ModuleFunctions::function, cuModuleGetFunction),
    HVD_SAME(ModuleFunctions::launch, cuLaunchKernel),
};
#undef HVD_SAME
constexpr std::size_t differing() {
  for (std::size_t i = 0; i < std::size(kSame); ++i) {
    if (!kSame[i]) return i + 1;
  }
  return 0;
}
static_assert(differing() == 0, "a function, of this number in the list, has another signature");
// A group has a reference to the library besides its functions.
template <typename... Groups>
constexpr std::size_t kFunctions = ((sizeof(Groups) / sizeof(void (*)()) - 1) + ...);
static_assert(std::size(kSame) == kFunctions<cuda::ProcessFunctions, cuda::ContextFunctions, cuda::StreamFunctions,
                                             cuda::EventFunctions, cuda::MemoryFunctions, cuda::ModuleFunctions>,
              "a function is not compared");

static_assert(std::is_same_v<CUdevice, cuda::Device> && std::is_same_v<CUdeviceptr, cuda::Address>);
static_assert(CUDA_SUCCESS == cuda::kSuccess && CUDA_ERROR_NOT_READY == cuda::kNotReady);
static_assert(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED == cuda::kCaptureUnsupported);
static_assert(CU_STREAM_CAPTURE_STATUS_NONE == 0 && CU_STREAM_CAPTURE_MODE_RELAXED == cuda::kRelaxedCapture);
static_assert(CU_STREAM_NON_BLOCKING == cuda::kNonBlockingStream &&
              CU_EVENT_DISABLE_TIMING == cuda::kEventWithoutTiming);

}  // namespace

}  // namespace hvd::testing
