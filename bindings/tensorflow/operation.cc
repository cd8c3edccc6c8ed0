// One run of a collective's kernel, from TensorFlow's call to its callback: takes the inputs from the context and
// creates the outputs, starts the operation, and finishes on the thread that completes it.
//
// Allreduces and broadcasts write their results into their inputs' memory if TensorFlow does not need the inputs any
// longer: memory that is new to the process costs a page fault for every 4 KiB. Outputs whose shapes are known only
// after the operation are allocated by hvd and passed to TensorFlow without a copy, in a GPU's memory, too, as
// TensorFlow does with tensors that it receives by DLPack.
#include <pthread.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <functional>
#include <iterator>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bindings/tensorflow/c_api.h"
#include "bindings/tensorflow/kernels.h"
#include "core/base/mutex.h"
#include "hvd.h"

namespace hvd::tf {

namespace {

struct Row {
  DataType tensorflow;
  hvd_dtype hvd;
  std::size_t bytes;
};

constexpr Row kRows[] = {
    {DataType::uint8, HVD_UINT8, 1},       {DataType::int8, HVD_INT8, 1},       {DataType::int16, HVD_INT16, 2},
    {DataType::int32, HVD_INT32, 4},       {DataType::int64, HVD_INT64, 8},     {DataType::float16, HVD_FLOAT16, 2},
    {DataType::bfloat16, HVD_BFLOAT16, 2}, {DataType::float32, HVD_FLOAT32, 4}, {DataType::float64, HVD_FLOAT64, 8},
    {DataType::boolean, HVD_BOOL, 1},      {DataType::uint16, HVD_UINT16, 2},   {DataType::uint32, HVD_UINT32, 4},
    {DataType::uint64, HVD_UINT64, 8},
};

// The completion callback of an asynchronous kernel.
//
// The C API passes a kernel the address of a std::function<void()> that is a parameter of TensorFlow's own function,
// and destroyed when the kernel's function returns: TF_RunAsyncOpKernelDoneCallback() can only be called before that
// (tensorflow/c/kernels.cc, COpKernel's ComputeAsync). Therefore it is copied on entry, and the copy is called. That
// requires libstdc++'s std::function on both sides, whose layout has not changed since GCC 5 and does not depend on its
// ABI switch; find_c_api() refuses a TensorFlow built with another library. It is copied, not moved, because a later
// TensorFlow might still use the object. Intel's plugin for TensorFlow does the same.
using Done = std::function<void()>;

Done copied(AsyncDoneCallback* callback) { return *reinterpret_cast<const Done*>(callback); }

bool has_tensors(hvd_collective collective) { return collective != HVD_BARRIER && collective != HVD_JOIN; }

// An empty tensor may have an arbitrary address.
void* memory_of(const Tensor* tensor) { return api().TensorByteSize(tensor) == 0 ? nullptr : api().TensorData(tensor); }

void free_memory(void* data, std::size_t, void*) { hvd_free(data); }

// Waits for the end of operations on GPUs.
//
// hvd calls back when such an operation is enqueued in a stream, and TensorFlow, whose streams the C API does not
// expose, must not continue before it has ended. A thread of this library therefore waits in between, for one operation
// after the other: an operation in a stream was submitted by all ranks, and ends without further calls. The thread
// exists while there are operations to wait for; every operation ends, because hvd aborts those that do not, and all at
// hvd_shutdown().
class GpuWaiter {
 public:
  // Calls `then` on that thread when the operation has ended, successfully or not.
  void add(hvd_work* work, std::function<void()> then) {
    const MutexLock lock(mutex_);
    queue_.push_back({work, std::move(then)});
    if (running_) return;
    std::thread thread([this] { run(); });
    pthread_setname_np(thread.native_handle(), "hvd-tf-gpu");
    thread.detach();
    running_ = true;
  }

 private:
  struct Entry {
    hvd_work* work;
    std::function<void()> then;
  };

  void run() {
    for (;;) {
      MutexLock lock(mutex_);
      if (queue_.empty()) {
        running_ = false;
        return;
      }
      const Entry next = std::move(queue_.front());
      queue_.pop_front();
      lock.unlock();
      hvd_work_wait(next.work, -1);
      next.then();
    }
  }

  Mutex mutex_;
  std::deque<Entry> queue_ GUARDED_BY(mutex_);
  bool running_ GUARDED_BY(mutex_) = false;  // whether the thread exists
};

// Never destroyed: the thread may outlive main().
GpuWaiter& waiter() {
  static auto* const one = new GpuWaiter;
  return *one;
}

class Operation {
 public:
  // In all cases `done` is called once, and the operation deletes itself.
  static void start(const CollectiveKernel& kernel, OpKernelContext* context, Done done) {
    auto* const operation = new Operation(kernel, context, std::move(done));
    if (!operation->take_tensors()) return operation->finish();
    if (kernel.waits) return operation->run();
    if (!operation->submit()) return operation->finish();
    // The operation may be deleted at any time from here on.
    const hvd_status status = hvd_work_on_done(operation->work_, on_done, operation);
    if (status == HVD_OK) return;
    operation->fail(status);
    operation->finish();
  }

 private:
  Operation(const CollectiveKernel& kernel, OpKernelContext* context, Done done)
      : kernel_(kernel),
        context_(context),
        done_(std::move(done)),
        device_(kernel.on_gpu ? api().GetDeviceId(context) : HVD_CPU),
        in_place_(kernel.collective == HVD_ALLREDUCE || kernel.collective == HVD_BROADCAST) {}

  ~Operation() { hvd_work_free(work_); }

  // Each returns false after it has set the error on the context.
  bool take_tensors() {
    if (!has_tensors(kernel_.collective)) return true;
    const bool has_splits = kernel_.collective == HVD_ALLTOALL;
    const int count = api().NumInputs(context_) - (has_splits ? 1 : 0) - (kernel_.ordered ? 0 : 1);
    const auto size = static_cast<std::size_t>(count);
    held_.reserve(size);
    shapes_.reserve(size);
    inputs_.reserve(size);
    outputs_.reserve(size);
    for (int i = 0; i < count; ++i) {
      if (!take_tensor(i)) return false;
    }
    return !has_splits || take_splits();
  }

  bool take_splits() {
    Tensor* pointer = nullptr;
    api().GetInput(context_, 1, &pointer, status_.get());
    const OwnedTensor splits(pointer);
    if (!status_.ok()) return false;
    if (api().NumDims(splits.get()) != 1) return fail(Code::invalid_argument, "hvd: splits must have one dimension");
    splits_.resize(static_cast<std::size_t>(api().Dim(splits.get(), 0)));
    if (!splits_.empty()) {
      std::memcpy(splits_.data(), api().TensorData(splits.get()), splits_.size() * sizeof(std::int64_t));
    }
    return true;
  }

  bool take_tensor(int i) {
    Tensor* pointer = nullptr;
    api().GetInput(context_, i, &pointer, status_.get());
    OwnedTensor input(pointer);
    if (!status_.ok()) return false;
    const Row* const row = std::ranges::find(kRows, api().TensorType(input.get()), &Row::tensorflow);
    if (row == std::end(kRows)) return fail(Code::invalid_argument, "hvd: tensors of this type cannot be moved");
    const int dimensions = api().NumDims(input.get());
    std::vector<std::int64_t>& shape = shapes_.emplace_back();
    for (int d = 0; d < dimensions; ++d) shape.push_back(api().Dim(input.get(), d));
    const hvd_tensor tensor{.data = memory_of(input.get()),
                            .shape = shape.data(),
                            .dimensions = dimensions,
                            .dtype = row->hvd,
                            .device = device_,
                            .reserved = 0};
    inputs_.push_back(tensor);
    if (!in_place_) {
      held_.push_back(std::move(input));
      return true;
    }
    // TensorFlow forwards memory of which the context has the only reference; the context keeps it as long as we need
    // it.
    input.reset();
    int forwarded = -1;
    OwnedTensor output(
        api().ForwardInputOrAllocateOutput(context_, &i, 1, i, shape.data(), dimensions, &forwarded, status_.get()));
    if (!status_.ok()) return false;
    outputs_.push_back(tensor);
    outputs_.back().data = memory_of(output.get());
    held_.push_back(std::move(output));
    return true;
  }

  bool submit() {
    const hvd_call call = make_call();
    const hvd_status status = hvd_submit(&call, &work_);
    return status == HVD_OK || fail(status);
  }

  // Operations without a name are numbered, as those of submit() are.
  void run() {
    const hvd_call call = make_call();
    const hvd_status status = call.name != nullptr ? hvd_run(&call, -1, &work_) : hvd_run_all(&call, 1, -1, &work_);
    if (status == HVD_OK) {
      set_results();
    } else {
      fail(status);
    }
    finish();
  }

  hvd_call make_call() const {
    hvd_call call = HVD_CALL_INIT;
    call.collective = kernel_.collective;
    call.process_set = kernel_.process_set;
    call.name = kernel_.name.empty() ? nullptr : kernel_.name.c_str();
    call.reduce_op = kernel_.reduce_op;
    call.root_rank = kernel_.root_rank;
    call.prescale = kernel_.prescale;
    call.postscale = kernel_.postscale;
    call.count = inputs_.size();
    call.inputs = inputs_.data();
    call.outputs = in_place_ ? outputs_.data() : nullptr;
    call.splits = splits_.empty() ? nullptr : splits_.data();
    call.splits_count = splits_.size();
    // TensorFlow does not expose the streams of the inputs' producers and of earlier users of the outputs' memory.
    call.stream = kernel_.on_gpu ? HVD_ALL_STREAMS : nullptr;
    return call;
  }

  static void on_done(void* operation) {
    auto* const self = static_cast<Operation*>(operation);
    if (hvd_work_poll(self->work_) == 1) return self->end();
    waiter().add(self->work_, [self] { self->end(); });
  }

  void end() {
    const hvd_status status = hvd_work_wait(work_, 0);
    if (status == HVD_OK) {
      set_results();
    } else {
      fail(status);
    }
    finish();
  }

  void set_results() {
    if (in_place_ || kernel_.collective == HVD_BARRIER) return;
    if (kernel_.collective == HVD_JOIN) {
      set_last_joined();
      return;
    }
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      if (!set_output(static_cast<int>(i), i)) return;
    }
    if (kernel_.collective == HVD_ALLTOALL) set_received_splits();
  }

  bool set_output(int index, std::size_t i) {
    hvd_tensor result{};
    const hvd_status status = hvd_work_take_output(work_, i, &result);
    if (status != HVD_OK) return fail(status);
    const auto [type, dtype, size] = *std::ranges::find(kRows, static_cast<hvd_dtype>(result.dtype), &Row::hvd);
    std::size_t bytes = size;
    for (std::int32_t d = 0; d < result.dimensions; ++d) bytes *= static_cast<std::size_t>(result.shape[d]);
    if (bytes == 0) {
      hvd_free(result.data);
      const OwnedTensor empty(
          api().AllocateOutput(context_, index, type, result.shape, result.dimensions, 0, status_.get()));
      return status_.ok();
    }
    const OwnedTensor output(
        api().NewTensor(type, result.shape, result.dimensions, result.data, bytes, free_memory, nullptr));
    api().SetOutput(context_, index, output.get(), status_.get());
    return status_.ok();
  }

  bool set_received_splits() {
    const std::int64_t* splits = nullptr;
    std::size_t count = 0;
    const hvd_status status = hvd_work_received_splits(work_, &splits, &count);
    if (status != HVD_OK) return fail(status);
    const auto size = static_cast<std::int64_t>(count);
    const OwnedTensor output(
        api().AllocateOutput(context_, 1, DataType::int32, &size, 1, count * sizeof(std::int32_t), status_.get()));
    if (!status_.ok()) return false;
    auto* const to = static_cast<std::int32_t*>(api().TensorData(output.get()));
    std::transform(splits, splits + count, to, [](std::int64_t rows) { return static_cast<std::int32_t>(rows); });
    return true;
  }

  bool set_last_joined() {
    std::int32_t last = -1;
    const hvd_status status = hvd_work_last_joined(work_, &last);
    if (status != HVD_OK) return fail(status);
    const OwnedTensor output(
        api().AllocateOutput(context_, 0, DataType::int32, nullptr, 0, sizeof last, status_.get()));
    if (!status_.ok()) return false;
    std::memcpy(api().TensorData(output.get()), &last, sizeof last);
    return true;
  }

  bool fail(Code code, const std::string& message) {
    status_.set(code, message);
    return false;
  }

  // The prefix names the source: TensorFlow adds the node, and raises the same type for other errors.
  bool fail(hvd_status status) { return fail(code_of(status), std::string("hvd: ") + hvd_last_error()); }

  void finish() {
    if (!status_.ok()) api().OpKernelContext_Failure(context_, status_.get());
    const Done done = done_;
    delete this;  // before `done`, which releases the context and memory that TensorFlow owns
    done();
  }

  const CollectiveKernel& kernel_;  // owned by TensorFlow, valid until done
  OpKernelContext* const context_;
  const Done done_;
  const std::int32_t device_;
  const bool in_place_;  // the outputs have the inputs' shapes, and their memory where possible
  OwnedStatus status_;
  std::vector<OwnedTensor> held_;                  // kept while hvd reads or writes them
  std::vector<std::vector<std::int64_t>> shapes_;  // by tensor
  std::vector<hvd_tensor> inputs_;
  std::vector<hvd_tensor> outputs_;
  std::vector<std::int64_t> splits_;  // alltoall; empty: equal parts
  hvd_work* work_ = nullptr;
};

}  // namespace

void run_kernel(void* kernel, OpKernelContext* context, AsyncDoneCallback* callback) {
  Operation::start(*static_cast<const CollectiveKernel*>(kernel), context, copied(callback));
}

}  // namespace hvd::tf
