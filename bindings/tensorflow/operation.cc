#include "bindings/tensorflow/operation.h"

#include <pthread.h>

#include <algorithm>
#include <cstring>
#include <deque>
#include <thread>
#include <utility>

#include "core/base/mutex.h"

namespace hvd::tf {

namespace {

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

}  // namespace

Operation::Operation(const CollectiveKernel& kernel, OpKernelContext* context, Done done)
    : kernel_(kernel),
      context_(context),
      done_(std::move(done)),
      device_(kernel.on_gpu ? api().GetDeviceId(context) : HVD_CPU),
      in_place_(kernel.collective == HVD_ALLREDUCE || kernel.collective == HVD_BROADCAST) {}

Operation::~Operation() { hvd_work_free(work_); }

void Operation::start(const CollectiveKernel& kernel, OpKernelContext* context, Done done) {
  auto* const operation = new Operation(kernel, context, std::move(done));
  if (!operation->take_tensors() || !operation->submit()) return operation->finish();
  // The operation may be deleted at any time from here on.
  const hvd_status status = hvd_work_on_done(operation->work_, on_done, operation);
  if (status == HVD_OK) return;
  operation->fail(status);
  operation->finish();
}

bool Operation::take_tensors() {
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

bool Operation::take_tensor(int i) {
  Tensor* pointer = nullptr;
  api().GetInput(context_, i, &pointer, status_.get());
  OwnedTensor input(pointer);
  if (!status_.ok()) return false;
  const DataType type = api().TensorType(input.get());
  const auto dtype = to_hvd(type);
  if (!dtype) return fail(Code::invalid_argument, "hvd: tensors of this type cannot be moved");
  const int dimensions = api().NumDims(input.get());
  std::vector<std::int64_t>& shape = shapes_.emplace_back();
  for (int d = 0; d < dimensions; ++d) shape.push_back(api().Dim(input.get(), d));
  const hvd_tensor tensor{.data = memory_of(input.get()),
                          .shape = shape.data(),
                          .dimensions = dimensions,
                          .dtype = *dtype,
                          .device = device_,
                          .reserved = 0};
  inputs_.push_back(tensor);
  if (!in_place_) {
    held_.push_back(std::move(input));
    return true;
  }
  // TensorFlow forwards memory of which the context has the only reference; the context keeps it as long as we need it.
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

bool Operation::take_splits() {
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

bool Operation::submit() {
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
  const hvd_status status = hvd_submit(&call, &work_);
  return status == HVD_OK || fail(status);
}

void Operation::on_done(void* operation) {
  auto* const self = static_cast<Operation*>(operation);
  if (hvd_work_poll(self->work_) == 1) return self->end();
  waiter().add(self->work_, [self] { self->end(); });
}

void Operation::end() {
  const hvd_status status = hvd_work_wait(work_, 0);
  if (status == HVD_OK) {
    set_results();
  } else {
    fail(status);
  }
  finish();
}

void Operation::set_results() {
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

bool Operation::set_output(int index, std::size_t i) {
  hvd_tensor result{};
  const hvd_status status = hvd_work_take_output(work_, i, &result);
  if (status != HVD_OK) return fail(status);
  const DataType type = to_tensorflow(result.dtype);
  std::size_t bytes = size_of(type);
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

bool Operation::set_received_splits() {
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

bool Operation::set_last_joined() {
  std::int32_t last = -1;
  const hvd_status status = hvd_work_last_joined(work_, &last);
  if (status != HVD_OK) return fail(status);
  const OwnedTensor output(api().AllocateOutput(context_, 0, DataType::int32, nullptr, 0, sizeof last, status_.get()));
  if (!status_.ok()) return false;
  std::memcpy(api().TensorData(output.get()), &last, sizeof last);
  return true;
}

bool Operation::fail(Code code, const std::string& message) {
  status_.set(code, message);
  return false;
}

// The prefix names the source: TensorFlow adds the node, and raises the same type for other errors.
bool Operation::fail(hvd_status status) { return fail(code_of(status), std::string("hvd: ") + hvd_last_error()); }

void Operation::finish() {
  if (!status_.ok()) api().OpKernelContext_Failure(context_, status_.get());
  const Done done = done_;
  delete this;  // before `done`, which releases the context and memory that TensorFlow owns
  done();
}

}  // namespace hvd::tf
