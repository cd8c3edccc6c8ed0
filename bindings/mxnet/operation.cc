// In-place collectives as asynchronous operations of MXNet's engine. The engine calls begin() when the arrays' previous
// writers have finished; begin() submits to hvd and returns. When hvd completes the operation, on_complete releases the
// engine's later operations.
#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "bindings/mxnet/c_api.h"
#include "hvd.h"

namespace hvd::mx {
namespace {

CApi& api() {
  static CApi functions{};
  return functions;
}

struct DtypeMapping {
  std::uint8_t code, bits;  // DLPack's
  hvd_dtype hvd;
};

constexpr DtypeMapping kDtypes[] = {
    {kDLFloat, 32, HVD_FLOAT32}, {kDLFloat, 64, HVD_FLOAT64},
    {kDLFloat, 16, HVD_FLOAT16}, {kDLBfloat, 16, HVD_BFLOAT16},
    {kDLUInt, 8, HVD_UINT8},     {kDLInt, 8, HVD_INT8},
    {kDLInt, 32, HVD_INT32},     {kDLInt, 64, HVD_INT64},
    {kDLUInt, 1, HVD_BOOL},  // as MXNet says it; a byte each
};

// MXNet raises the Python exception type with which the message begins (mxnet.error, hvd.mxnet.library).
std::string message_of(hvd_status status) {
  const bool is_of_ranks = status != HVD_INVALID_ARGUMENT && status != HVD_NOT_INITIALIZED;
  return std::string(is_of_ranks ? "HorovodInternalError: " : "ValueError: ") + hvd_last_error();
}

// `told`: MXNet's message, whose first line is the reason.
std::string problem_of_memory(const std::string& told) {
  if (told.find("MKLDNN data") != std::string::npos) {
    return "ValueError: an array that oneDNN has laid out in memory, such as the output of a convolution, cannot be "
           "changed in place: give its copy()";
  }
  return "ValueError: MXNet does not give hvd the memory of an array: " + told.substr(0, told.find('\n'));
}

struct Extent {
  const std::byte *begin, *end;
  auto operator<=>(const Extent&) const = default;
};

// Owned by the engine, which deletes it when it has ended, and also if it never begins because a previous writer of its
// arrays has failed.
class Operation {
 public:
  Operation(const hvd_call& call, NDArray* const* arrays) : call_(call), name_(call.name), arrays_(call.count) {
    call_.name = name_.c_str();
    for (std::size_t i = 0; i < arrays_.size(); ++i) {
      // The caller's own objects may be gone before the engine begins. Does not fail for an array that exists.
      api().NDArrayDetach(arrays[i], &arrays_[i]);
    }
  }
  ~Operation() {
    for (DLManagedTensor* const tensor : memory_) tensor->deleter(tensor);
    for (NDArray* const array : arrays_) api().NDArrayFree(array);
  }
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

  static int push(std::unique_ptr<Operation> operation) {
    std::vector<NDArray*> changed = operation->distinct_variables();
    constexpr auto property = FnProperty::async;
    const int priority = operation->call_.priority;
    Operation* const self = operation.release();
    // A literal: MXNet's profiler keeps the pointer.
    return api().EnginePushAsyncND(
        begin, self, [](void* given) { delete static_cast<Operation*>(given); }, &kCpu, nullptr, 0, changed.data(),
        static_cast<int>(changed.size()), &property, priority, "hvd", false);
  }

 private:
  // One array per engine variable: naming a variable twice deadlocks the engine.
  std::vector<NDArray*> distinct_variables() const {
    std::vector<NDArray*> result = arrays_;
    std::ranges::sort(result, {}, memory_of);
    const auto others = std::ranges::unique(result, {}, memory_of);
    result.erase(others.begin(), others.end());
    return result;
  }

  static void begin(void* /*run_context*/, void* on_complete, void* operation) {
    auto* const self = static_cast<Operation*>(operation);
    self->on_complete_ = *static_cast<const OnComplete*>(on_complete);
    self->submit();
  }

  void submit() {
    for (NDArray* const array : arrays_) {
      if (const std::string problem = describe(array); !problem.empty()) return finish(problem);
    }
    if (share_memory()) return finish("ValueError: arrays of a group share memory: each may be in it once");
    call_.inputs = tensors_.data();
    call_.outputs = tensors_.data();
    const hvd_status status = hvd_submit(&call_, &work_);
    if (status != HVD_OK) return finish(message_of(status));
    hvd_work_on_done(work_, end, this);
  }

  // Returns why the array's memory cannot be used; empty: it can.
  std::string describe(NDArray* array) {
    DLManagedTensor* tensor = nullptr;
    if (api().NDArrayToDLPack(array, &tensor) != 0) return problem_of_memory(api().GetLastError());
    memory_.push_back(tensor);
    const DLTensor& given = tensor->dl_tensor;
    const auto* const row = std::ranges::find_if(kDtypes, [&given](const DtypeMapping& each) {
      return each.code == given.dtype.code && each.bits == given.dtype.bits;
    });
    if (row == std::end(kDtypes)) return "ValueError: arrays of this dtype are not supported";
    std::byte* const begin = static_cast<std::byte*>(given.data) + given.byte_offset;
    std::int64_t bytes = (given.dtype.bits + 7) / 8;
    for (int d = 0; d < given.ndim; ++d) bytes *= given.shape[d];
    if (bytes > 0) extents_.push_back({begin, begin + bytes});
    tensors_.push_back({.data = begin,
                        .shape = given.shape,
                        .dimensions = given.ndim,
                        .dtype = row->hvd,
                        .device = HVD_CPU,
                        .reserved = 0});
    return "";
  }

  bool share_memory() {
    std::ranges::sort(extents_);
    return std::ranges::adjacent_find(extents_, [](const Extent& first, const Extent& second) {
             return second.begin < first.end;
           }) != extents_.end();
  }

  // Called on a thread of hvd, or in submit().
  static void end(void* operation) {
    auto* const self = static_cast<Operation*>(operation);
    const hvd_status status = hvd_work_wait(self->work_, 0);
    const std::string problem = status == HVD_OK ? "" : message_of(status);
    hvd_work_free(self->work_);
    self->finish(problem);
  }

  void finish(const std::string& problem) {
    const OnComplete done = on_complete_;  // the callback deletes this operation
    if (problem.empty()) return done.callback(done.engine, done.parameter, nullptr);
    const std::runtime_error error(problem);
    done.callback(done.engine, done.parameter, &error);
  }

  hvd_call call_;
  const std::string name_;
  std::vector<NDArray*> arrays_;
  std::vector<DLManagedTensor*> memory_;  // since begin()
  std::vector<hvd_tensor> tensors_;
  std::vector<Extent> extents_;
  OnComplete on_complete_{};
  hvd_work* work_ = nullptr;
};

}  // namespace
}  // namespace hvd::mx

extern "C" {

// Must be called first. `functions`: those of the MXNet that this process has loaded.
__attribute__((visibility("default"))) void hvd_mxnet_connect(const hvd::mx::CApi* functions) {
  hvd::mx::api() = *functions;
}

// Pushes an allreduce or a broadcast in place into MXNet's engine, and returns as functions of MXNet's C API do.
// `arrays`: `count` of them, on the CPU. Errors of the operation are those of the arrays afterwards.
__attribute__((visibility("default"))) int hvd_mxnet_push(std::int32_t collective, std::int32_t process_set,
                                                          const char* name, std::int32_t reduce_op,
                                                          std::int32_t root_rank, double prescale, double postscale,
                                                          std::int32_t priority, hvd::mx::NDArray* const* arrays,
                                                          std::int32_t count) {
  hvd_call call = HVD_CALL_INIT;
  call.collective = collective;
  call.process_set = process_set;
  call.name = name;
  call.reduce_op = reduce_op;
  call.root_rank = root_rank;
  call.prescale = prescale;
  call.postscale = postscale;
  call.priority = priority;
  call.count = static_cast<std::size_t>(count);
  return hvd::mx::Operation::push(std::make_unique<hvd::mx::Operation>(call, arrays));
}

}  // extern "C"
