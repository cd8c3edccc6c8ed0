// The handlers of all collectives, one for arrays on CPUs and one for those on GPUs: a call in a compiled program is
// one operation, of as many tensors as it has arguments, whose results are written into XLA's buffers.
//
// On a CPU the handler blocks XLA's thread until the operation ends. Returning a future would add a handover between
// threads and gain nothing, because hvd.jax's token already keeps XLA from starting the next call. On a GPU the handler
// returns when the operation is enqueued, and XLA's stream waits for it: the device never waits for the host, and XLA
// reuses the buffers in the order of its stream.
#include <algorithm>
#include <deque>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bindings/jax/ffi.h"
#include "hvd.h"

namespace hvd::ffi {
namespace {

// A complex number is two floats, as one more dimension; an 8-bit float, which is only moved, is a byte.
struct DtypeMapping {
  DataType xla;
  hvd_dtype hvd;
  bool is_complex = false;
};

constexpr DtypeMapping kDtypes[] = {
    {DataType::u8, HVD_UINT8},
    {DataType::s8, HVD_INT8},
    {DataType::s16, HVD_INT16},
    {DataType::s32, HVD_INT32},
    {DataType::s64, HVD_INT64},
    {DataType::f16, HVD_FLOAT16},
    {DataType::f32, HVD_FLOAT32},
    {DataType::f64, HVD_FLOAT64},
    {DataType::bf16, HVD_BFLOAT16},
    {DataType::pred, HVD_BOOL},
    {DataType::u16, HVD_UINT16},
    {DataType::u32, HVD_UINT32},
    {DataType::u64, HVD_UINT64},

    {DataType::c64, HVD_FLOAT32, true},
    {DataType::c128, HVD_FLOAT64, true},

    {DataType::f8e3m4, HVD_UINT8},
    {DataType::f8e4m3, HVD_UINT8},
    {DataType::f8e4m3b11fnuz, HVD_UINT8},
    {DataType::f8e4m3fn, HVD_UINT8},
    {DataType::f8e4m3fnuz, HVD_UINT8},
    {DataType::f8e5m2, HVD_UINT8},
    {DataType::f8e5m2fnuz, HVD_UINT8},
    {DataType::f8e8m0fnu, HVD_UINT8},
};

const DtypeMapping* mapping_of(DataType dtype) {
  const DtypeMapping* const row = std::ranges::find(kDtypes, dtype, &DtypeMapping::xla);
  return row == std::end(kDtypes) ? nullptr : row;
}

// Reads the attributes of a call by name. hvd.jax sets all of them except arrays that are not needed; a wrong type
// would be a defect of hvd.jax.
class AttributeReader {
 public:
  explicit AttributeReader(const Attributes& attributes) : attributes_(attributes) {}

  std::string text(std::string_view name) const {
    const auto* const span = static_cast<const ByteSpan*>(find(name, AttributeType::string));
    return span == nullptr ? "" : std::string(span->data, span->size);
  }
  std::int64_t integer(std::string_view name) const {
    const auto* const scalar = static_cast<const Scalar*>(find(name, AttributeType::scalar));
    if (scalar == nullptr || scalar->dtype != DataType::s64) return 0;
    return *static_cast<const std::int64_t*>(scalar->value);
  }
  double number(std::string_view name) const {
    const auto* const scalar = static_cast<const Scalar*>(find(name, AttributeType::scalar));
    if (scalar == nullptr || scalar->dtype != DataType::f64) return 1;
    return *static_cast<const double*>(scalar->value);
  }
  std::span<const std::int64_t> integers(std::string_view name) const {
    const auto* const array = static_cast<const Array*>(find(name, AttributeType::array));
    if (array == nullptr || array->dtype != DataType::s64) return {};
    return {static_cast<const std::int64_t*>(array->data), array->size};
  }

 private:
  const void* find(std::string_view name, AttributeType type) const {
    for (std::int64_t i = 0; i < attributes_.size; ++i) {
      const ByteSpan& own = *attributes_.names[i];
      if (std::string_view(own.data, own.size) == name && attributes_.types[i] == type) return attributes_.values[i];
    }
    return nullptr;
  }

  const Attributes& attributes_;
};

class Operation {
 public:
  Operation(CallFrame& frame, bool is_on_gpu) : frame_(frame), is_on_gpu_(is_on_gpu) {}

  Error* run() {
    const AttributeReader attributes(frame_.attributes);
    const auto collective = static_cast<hvd_collective>(attributes.integer("collective"));
    if (Error* const error = find_place(); error != nullptr) return error;
    if (!describe(frame_.arguments, inputs_) || !describe(frame_.results, outputs_)) {
      return fail(ErrorCode::invalid_argument, "hvd.jax: arrays of this dtype cannot be moved");
    }
    set_name(attributes);
    hvd_call call = HVD_CALL_INIT;
    call.collective = collective;
    call.process_set = static_cast<std::int32_t>(attributes.integer("process_set"));
    call.name = name_.c_str();
    call.reduce_op = static_cast<std::int32_t>(attributes.integer("op"));
    call.root_rank = static_cast<std::int32_t>(attributes.integer("root_rank"));
    call.prescale = attributes.number("prescale_factor");
    call.postscale = attributes.number("postscale_factor");
    call.count = inputs_.size();
    call.inputs = inputs_.data();
    call.outputs = outputs_.data();
    const std::span<const std::int64_t> splits = attributes.integers("splits");
    call.splits = splits.empty() ? nullptr : splits.data();
    call.splits_count = splits.size();
    call.stream = stream_;
    hvd_work* work = nullptr;
    const hvd_status status = start(call, work);
    Error* const error = end_of(call, status, work, attributes.integers("received_splits"));
    hvd_work_free(work);
    return error;
  }

 private:
  // Which of this process's devices makes the call, and its stream.
  Error* find_place() {
    DeviceOrdinalArguments arguments{sizeof arguments, nullptr, frame_.context, 0};
    if (Error* const error = frame_.api->get_device_ordinal(&arguments); error != nullptr) return error;
    if (!is_on_gpu_) {
      local_device_ = arguments.ordinal;
      return nullptr;
    }
    device_ = arguments.ordinal;
    StreamArguments stream{sizeof stream, nullptr, frame_.context, nullptr};
    Error* const error = frame_.api->get_stream(&stream);
    stream_ = stream.stream;
    return error;
  }

  // Needs no timeout: every operation ends, at the latest when the runtime's own deadlines have passed.
  hvd_status start(const hvd_call& call, hvd_work*& work) const {
    if (!is_on_gpu_) return hvd_run(&call, -1, &work);
    const hvd_status status = hvd_submit(&call, &work);
    return status == HVD_OK ? hvd_work_wait_on_stream(work, stream_, -1) : status;
  }

  Error* end_of(const hvd_call& call, hvd_status status, hvd_work* work, std::span<const std::int64_t> expected) {
    // The operation was started: other ranks have other numbers of rows than the program was compiled for.
    const bool has_other_rows = work != nullptr && status == HVD_INVALID_ARGUMENT;
    if (call.collective == HVD_ALLTOALL && (status == HVD_OK || has_other_rows)) {
      return check_received(call, has_other_rows ? nullptr : work, expected);
    }
    if (has_other_rows) {
      return fail_between_ranks(std::string(hvd_last_error()) +
                                "; a compiled program needs equally many rows on all ranks: pad them to the same");
    }
    return status == HVD_OK ? nullptr : fail(status);
  }

  bool describe(const Buffers& buffers, std::vector<hvd_tensor>& tensors) {
    for (std::int64_t i = 0; i < buffers.size; ++i) {
      const Buffer& buffer = *buffers.buffers[i];
      if (buffer.dtype == DataType::token) continue;
      const DtypeMapping* const row = mapping_of(buffer.dtype);
      if (buffers.types[i] != ArgumentType::buffer || row == nullptr) return false;
      std::span<const std::int64_t> shape(buffer.shape, static_cast<std::size_t>(buffer.dimensions));
      if (row->is_complex) shape = of_pairs(shape);
      tensors.push_back({.data = buffer.data,
                         .shape = shape.data(),
                         .dimensions = static_cast<std::int32_t>(shape.size()),
                         .dtype = row->hvd,
                         .device = device_,
                         .reserved = 0});
    }
    return true;
  }

  std::span<const std::int64_t> of_pairs(std::span<const std::int64_t> shape) {
    std::vector<std::int64_t>& own = shapes_of_pairs_.emplace_back(shape.begin(), shape.end());
    own.push_back(2);
    return own;
  }

  // Each local device calls separately, so the device number is part of the name. The runtime must not number the
  // operations: those of other threads may come in between, on each rank at another time.
  void set_name(const AttributeReader& attributes) {
    name_ = attributes.text("name");
    if (name_.empty()) name_ = attributes.text("function");
    if (local_device_ != 0) name_ += ".device" + std::to_string(local_device_);
  }

  Error* fail(hvd_status status) const {
    const bool is_of_ranks = status != HVD_INVALID_ARGUMENT && status != HVD_NOT_INITIALIZED;
    return is_of_ranks ? fail_between_ranks(hvd_last_error())
                       : fail(ErrorCode::invalid_argument, std::string("hvd: ") + hvd_last_error());
  }

  // hvd.jax recognises these errors by the prefix.
  Error* fail_between_ranks(const std::string& text) const {
    return fail(ErrorCode::internal, "HorovodInternalError: " + text);
  }

  // If a rank received other row counts than compiled for, it would misattribute rows. All ranks must learn it, or
  // those with correct counts would continue alone. `work`: null if even the total differs.
  Error* check_received(const hvd_call& exchange, hvd_work* work, std::span<const std::int64_t> expected) const {
    const std::int64_t* received = nullptr;
    std::size_t count = 0;
    const std::string error_of_sum = work == nullptr ? hvd_last_error() : "";
    if (work != nullptr) {
      const hvd_status status = hvd_work_received_splits(work, &received, &count);
      if (status != HVD_OK) return fail(status);
    }
    const bool is_right = work != nullptr && std::ranges::equal(std::span(received, count), expected);
    hvd_topology job{};
    job.struct_size = sizeof job;
    hvd_get_topology(&job);  // does not fail: this rank is in an operation
    std::int32_t wrong_rank = is_right ? -1 : job.rank;
    if (const hvd_status status = find_greatest(exchange.process_set, wrong_rank); status != HVD_OK)
      return fail(status);
    if (wrong_rank < 0) return nullptr;
    std::string what = "alltoall '" + name_ + "': ";
    if (is_right) {
      what +=
          "rank " + std::to_string(wrong_rank) + " expected other numbers of rows from the ranks than they have sent";
    } else if (work == nullptr) {
      what = error_of_sum;
    } else {
      what +=
          "expected " + text_of(expected) + " rows from the ranks, but they have sent " + text_of({received, count});
    }
    return fail_between_ranks(what + ": received_splits, equal parts if not given, must be what the ranks' splits say");
  }

  hvd_status find_greatest(std::int32_t process_set, std::int32_t& value) const {
    const std::string name = name_ + ".received";
    const hvd_tensor tensor{
        .data = &value, .shape = nullptr, .dimensions = 0, .dtype = HVD_INT32, .device = HVD_CPU, .reserved = 0};
    hvd_call call = HVD_CALL_INIT;
    call.process_set = process_set;
    call.name = name.c_str();
    call.reduce_op = HVD_MAX;
    call.count = 1;
    call.inputs = call.outputs = &tensor;
    return hvd_run(&call, -1, nullptr);
  }

  static std::string text_of(std::span<const std::int64_t> numbers) {
    std::string text;
    for (const std::int64_t number : numbers) text += (text.empty() ? "[" : ", ") + std::to_string(number);
    return text + "]";
  }

  Error* fail(ErrorCode code, const std::string& message) const {
    ErrorCreateArguments arguments{sizeof arguments, nullptr, message.c_str(), code};
    return frame_.api->create_error(&arguments);
  }

  CallFrame& frame_;
  const bool is_on_gpu_;
  std::int32_t local_device_ = 0;  // on a CPU, of which XLA can make several devices; a rank has one GPU
  std::int32_t device_ = HVD_CPU;  // as in hvd_tensor
  void* stream_ = nullptr;
  std::string name_;
  std::vector<hvd_tensor> inputs_, outputs_;
  std::deque<std::vector<std::int64_t>> shapes_of_pairs_;  // to which tensors point
};

void describe_handler(Metadata& metadata) {
  metadata.version.major = 0;
  metadata.version.minor = 1;
  metadata.traits = 0;
}

Error* handle(CallFrame& frame, bool is_on_gpu) {
  if (frame.extension != nullptr && frame.extension->type == ExtensionType::metadata) {
    describe_handler(*reinterpret_cast<MetadataExtension*>(frame.extension)->metadata);
    return nullptr;
  }
  return frame.stage == Stage::execute ? Operation(frame, is_on_gpu).run() : nullptr;
}

}  // namespace
}  // namespace hvd::ffi

#define HVD_HANDLER extern "C" __attribute__((visibility("default"))) hvd::ffi::Error*

HVD_HANDLER hvd_jax_collective(hvd::ffi::CallFrame* frame) { return hvd::ffi::handle(*frame, false); }

HVD_HANDLER hvd_jax_collective_on_gpu(hvd::ffi::CallFrame* frame) { return hvd::ffi::handle(*frame, true); }
