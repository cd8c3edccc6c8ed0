#include "bindings/tensorflow/kernels.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstring>
#include <memory>

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

// Identifies the call that a node stems from if TensorFlow inlined a function into its caller: the names of the calls
// in the node's path, "/PartitionedCall_1". Empty if the node was not inlined.
//
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

void warn_of_way_through_host() {
  static std::atomic<bool> warned{false};
  if (warned.exchange(true)) return;
  std::fputs(
      "hvd: warning: TensorFlow's GPU tensors go through the host's memory (HVD_GPU_THROUGH_HOST=1): every byte is "
      "copied "
      "twice over the bus, and reduced by the CPU\n",
      stderr);
}

struct TopologyKernel {
  TopologyQuery query;
  std::int32_t process_set = HVD_GLOBAL_PROCESS_SET;  // of rank, size and included
};

bool concerns_process_set(TopologyQuery query) {
  return query == TopologyQuery::rank || query == TopologyQuery::size || query == TopologyQuery::included;
}

hvd_status look_up(const TopologyKernel& kernel, std::int32_t& value) {
  hvd_topology topology = HVD_TOPOLOGY_INIT;
  if (const hvd_status status = hvd_get_topology(&topology); status != HVD_OK) return status;
  switch (kernel.query) {
    case TopologyQuery::local_rank: value = topology.local_rank; return HVD_OK;
    case TopologyQuery::local_size: value = topology.local_size; return HVD_OK;
    default: break;
  }
  const std::int32_t* ranks = nullptr;
  std::size_t count = 0;
  const hvd_status status = hvd_get_process_set(kernel.process_set, &ranks, &count);
  if (status != HVD_OK) return status;
  const auto* const own = std::find(ranks, ranks + count, topology.rank);
  const bool included = own != ranks + count;
  switch (kernel.query) {
    case TopologyQuery::rank: value = included ? static_cast<std::int32_t>(own - ranks) : -1; break;
    case TopologyQuery::size: value = static_cast<std::int32_t>(count); break;
    default: value = included ? 1 : 0; break;
  }
  return HVD_OK;
}

}  // namespace

CollectiveKernel* make_kernel(hvd_collective collective, bool ordered, Memory memory,
                              OpKernelConstruction* construction) {
  if (memory == Memory::gpu_through_host) warn_of_way_through_host();
  auto kernel = std::make_unique<CollectiveKernel>();
  Attributes attributes(construction);
  kernel->collective = collective;
  kernel->ordered = ordered;
  kernel->on_gpu = memory == Memory::gpu;
  kernel->waits = attributes.number("waits") != 0 && !kernel->on_gpu;
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

void* make_topology_kernel(TopologyQuery query, OpKernelConstruction* construction) {
  TopologyKernel kernel{.query = query};
  Attributes attributes(construction);
  if (concerns_process_set(query)) kernel.process_set = attributes.number("process_set");
  return attributes.read() ? new TopologyKernel(kernel) : nullptr;
}

void run_topology_kernel(void* kernel, OpKernelContext* context) {
  std::int32_t value = 0;
  const hvd_status found = look_up(*static_cast<const TopologyKernel*>(kernel), value);
  if (found != HVD_OK) {
    const Code code = found == HVD_NOT_INITIALIZED ? Code::failed_precondition : code_of(found);
    const OwnedStatus status(code, std::string("hvd: ") + hvd_last_error());
    return api().OpKernelContext_Failure(context, status.get());
  }
  const OwnedStatus status;
  const OwnedTensor output(api().AllocateOutput(context, 0, DataType::int32, nullptr, 0, sizeof value, status.get()));
  if (!status.ok()) return api().OpKernelContext_Failure(context, status.get());
  std::memcpy(api().TensorData(output.get()), &value, sizeof value);
}

void delete_topology_kernel(void* kernel) { delete static_cast<TopologyKernel*>(kernel); }

}  // namespace hvd::tf
