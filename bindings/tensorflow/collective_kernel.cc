#include "bindings/tensorflow/collective_kernel.h"

#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>

#include "bindings/tensorflow/handles.h"
#include "bindings/tensorflow/operation.h"

namespace hvd::tf {

namespace {

// Reads attributes of a kernel under construction. After the first failure, it reads no others.
class Attributes {
 public:
  explicit Attributes(OpKernelConstruction* construction) : construction_(construction) {}

  std::int64_t integer(const char* name) {
    std::int64_t value = 0;
    if (status_.ok()) api().OpKernelConstruction_GetAttrInt64(construction_, name, &value, status_.get());
    return value;
  }

  std::int32_t number(const char* name) { return static_cast<std::int32_t>(integer(name)); }

  // TensorFlow's float attributes have 32 bits, too few for the scale factor of a double.
  double factor(const char* name) {
    const std::int64_t bits = integer(name);
    double value = 0;
    static_assert(sizeof value == sizeof bits);
    std::memcpy(&value, &bits, sizeof value);
    return value;
  }

  std::string text(const char* name) {
    std::int32_t list_size = 0;
    std::int32_t size = 0;
    if (status_.ok()) {
      api().OpKernelConstruction_GetAttrSize(construction_, name, &list_size, &size, status_.get());
    }
    std::string value(status_.ok() ? static_cast<std::size_t>(size) : 0, '\0');
    // Not NUL-terminated.
    if (!value.empty()) {
      api().OpKernelConstruction_GetAttrString(construction_, name, value.data(), value.size(), status_.get());
    }
    return value;
  }

  bool read() {
    if (!status_.ok()) api().OpKernelConstruction_Failure(construction_, status_.get());
    return status_.ok();
  }

 private:
  OpKernelConstruction* const construction_;
  OwnedStatus status_;
};

std::string name_of(OpKernelConstruction* construction) {
  const StringView name = api().OpKernelConstruction_GetName(construction);
  return {name.data, name.size};
}

}  // namespace

// TensorFlow runs two calls of a function concurrently if nothing orders them: their ops need distinct names.
std::string call_path(const std::string& node) {
  std::string path;
  std::size_t begin = 0;
  for (std::size_t end; (end = node.find('/', begin)) != std::string::npos; begin = end + 1) {
    const std::string part = node.substr(begin, end - begin);
    if (part.rfind("PartitionedCall", 0) == 0 || part.rfind("StatefulPartitionedCall", 0) == 0) path += "/" + part;
  }
  return path;
}

CollectiveKernel* make_kernel(hvd_collective collective, bool ordered, bool on_gpu,
                              OpKernelConstruction* construction) {
  auto kernel = std::make_unique<CollectiveKernel>();
  Attributes attributes(construction);
  kernel->collective = collective;
  kernel->ordered = ordered;
  kernel->on_gpu = on_gpu;
  if (collective != HVD_JOIN) {
    kernel->name = attributes.text("tensor_name");
    kernel->process_set = attributes.number("process_set");
  }
  if (!kernel->name.empty()) kernel->name += call_path(name_of(construction));
  if (collective == HVD_BROADCAST) kernel->root_rank = attributes.number("root_rank");
  if (collective == HVD_ALLREDUCE || collective == HVD_REDUCESCATTER) {
    kernel->reduce_op = attributes.number("reduce_op");
    kernel->prescale = attributes.factor("prescale_bits");
    kernel->postscale = attributes.factor("postscale_bits");
  }
  return attributes.read() ? kernel.release() : nullptr;
}

void warn_of_way_through_host() {
  static std::atomic<bool> warned{false};
  if (warned.exchange(true)) return;
  std::fputs(
      "hvd: warning: TensorFlow's GPU tensors go through the host's memory (HVD_GPU_THROUGH_HOST=1): every byte is "
      "copied "
      "twice over the bus, and reduced by the CPU\n",
      stderr);
}

void run_kernel(void* kernel, OpKernelContext* context, AsyncDoneCallback* callback) {
  Operation::start(*static_cast<const CollectiveKernel*>(kernel), context, copied(callback));
}

void delete_kernel(void* kernel) { delete static_cast<CollectiveKernel*>(kernel); }

// A graph that was traced with a runtime, and runs without one, finds it shut down: UnknownError, like every other end
// of a job. Not AbortedError, after which sessions of tf.compat.v1 retry without limit.
Code code_of(hvd_status status) {
  switch (status) {
    case HVD_INVALID_ARGUMENT: return Code::invalid_argument;
    case HVD_MISMATCH: return Code::failed_precondition;
    case HVD_UNSUPPORTED: return Code::unimplemented;
    default: return Code::unknown;
  }
}

}  // namespace hvd::tf
