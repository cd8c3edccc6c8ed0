// Compares bindings/tensorflow/c_api.h with TensorFlow's own headers: whoever compiles this has tested it.
#include "bindings/tensorflow/c_api.h"

#include HVD_VENDOR_HEADER

#include <tensorflow/c/ops.h>
#include <tensorflow/c/tf_status.h>
#include <tensorflow/c/tf_tensor.h>

#include <cstddef>

#include "tests/support/same_abi.h"

namespace hvd::testing {

namespace {

using Words =
    Glossary<Word<TF_StringView, tf::StringView>, Word<TF_Code, tf::Code>, Word<TF_DataType, tf::DataType>,
             Word<TF_Status*, tf::Status*>, Word<const TF_Status*, const tf::Status*>, Word<TF_Tensor*, tf::Tensor*>,
             Word<const TF_Tensor*, const tf::Tensor*>, Word<TF_OpDefinitionBuilder*, tf::OpDefinitionBuilder*>,
             Word<TF_ShapeInferenceContext*, tf::ShapeInferenceContext*>, Word<TF_ShapeHandle*, tf::ShapeHandle*>,
             Word<TF_KernelBuilder*, tf::KernelBuilder*>, Word<TF_OpKernelConstruction*, tf::OpKernelConstruction*>,
             Word<TF_OpKernelContext*, tf::OpKernelContext*>,
             Word<TF_AsyncOpKernelDoneCallback*, tf::AsyncDoneCallback*>>;

#define HVD_COMPARE(name, ...) \
  static_assert(same_abi<Words, decltype(&TF_##name), decltype(tf::CApi::name)>, "another signature: TF_" #name);
HVD_TF_FUNCTIONS(HVD_COMPARE)
#undef HVD_COMPARE

static_assert(offsetof(TF_StringView, data) == offsetof(tf::StringView, data));
static_assert(offsetof(TF_StringView, len) == offsetof(tf::StringView, size));

constexpr bool is(tf::Code ours, TF_Code theirs) { return static_cast<int>(ours) == static_cast<int>(theirs); }
static_assert(is(tf::Code::ok, TF_OK) && is(tf::Code::unknown, TF_UNKNOWN));
static_assert(is(tf::Code::invalid_argument, TF_INVALID_ARGUMENT));
static_assert(is(tf::Code::failed_precondition, TF_FAILED_PRECONDITION));
static_assert(is(tf::Code::unimplemented, TF_UNIMPLEMENTED));

constexpr bool is(tf::DataType ours, TF_DataType theirs) { return static_cast<int>(ours) == static_cast<int>(theirs); }
static_assert(is(tf::DataType::float32, TF_FLOAT) && is(tf::DataType::float64, TF_DOUBLE));
static_assert(is(tf::DataType::float16, TF_HALF) && is(tf::DataType::bfloat16, TF_BFLOAT16));
static_assert(is(tf::DataType::int8, TF_INT8) && is(tf::DataType::int16, TF_INT16));
static_assert(is(tf::DataType::int32, TF_INT32) && is(tf::DataType::int64, TF_INT64));
static_assert(is(tf::DataType::uint16, TF_UINT16) && is(tf::DataType::uint32, TF_UINT32));
static_assert(is(tf::DataType::uint64, TF_UINT64));
static_assert(is(tf::DataType::uint8, TF_UINT8) && is(tf::DataType::boolean, TF_BOOL));

}  // namespace

}  // namespace hvd::testing
