// Compares bindings/mxnet/c_api.h with MXNet's own headers: whoever compiles this has tested it.
#include "bindings/mxnet/c_api.h"

#include <cstddef>
#include <memory>
#include <type_traits>

#include HVD_VENDOR_HEADER  // mxnet/engine.h

#include <mxnet/c_api.h>

namespace hvd::mx {
namespace {

// MXNet's C API has void* for most of what is a type here.
template <typename T>
using Opened = std::conditional_t<std::is_pointer_v<T> && !std::is_same_v<T, const char*>, const void*, T>;

template <typename Given, typename Ours>
inline constexpr bool same = false;
template <typename... Given, typename... Ours>
inline constexpr bool same<int(Given...), int (*)(Ours...)> = (std::is_same_v<Opened<Given>, Opened<Ours>> && ...);

static_assert(same<decltype(MXEnginePushAsyncND), decltype(CApi::EnginePushAsyncND)>);
static_assert(same<decltype(MXNDArrayDetach), decltype(CApi::NDArrayDetach)>);
static_assert(same<decltype(MXNDArrayFree), decltype(CApi::NDArrayFree)>);
static_assert(same<decltype(MXNDArrayToDLPack), decltype(CApi::NDArrayToDLPack)>);
static_assert(std::is_same_v<decltype(&MXGetLastError), decltype(CApi::GetLastError)>);

static_assert(sizeof(OnComplete) == sizeof(mxnet::engine::CallbackOnComplete));
static_assert(sizeof(std::runtime_error) == sizeof(dmlc::Error) && std::is_base_of_v<std::runtime_error, dmlc::Error>);
static_assert(static_cast<int>(FnProperty::async) == static_cast<int>(mxnet::FnProperty::kAsync));
static_assert(sizeof(FnProperty) == sizeof(mxnet::FnProperty));
static_assert(sizeof(Context) == sizeof(mxnet::Context) &&
              offsetof(Context, device) == offsetof(mxnet::Context, dev_id) &&
              kCpu.device_type == mxnet::Context::kCPU);

}  // namespace
}  // namespace hvd::mx
