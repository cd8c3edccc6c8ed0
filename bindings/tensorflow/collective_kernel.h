// The kernels of the collectives: one asynchronous kernel for all of them. An executor's thread that runs it starts the
// operation and goes on; another thread ends it, hvd's own or, on a GPU, gpu_waiter's. So ranks may run their ops in
// any order with any number of threads.
#pragma once

#include <string>

#include "bindings/tensorflow/c_api.h"
#include "hvd.h"

namespace hvd::tf {

// Of one node of a graph, or of one set of attributes in eager mode: what every run of it has in common.
struct CollectiveKernel {
  hvd_collective collective;
  bool ordered;      // the last input of others is `unforeseen`: library.cc
  bool on_gpu;       // tensors lie in the memory of the context's device
  std::string name;  // empty: numbered by hvd
  std::int32_t process_set = HVD_GLOBAL_PROCESS_SET;
  std::int32_t reduce_op = HVD_SUM;
  std::int32_t root_rank = 0;
  double prescale = 1;
  double postscale = 1;
};

// For TF_NewAsyncKernelBuilder().
template <hvd_collective kCollective, bool kOrdered>
void* create_kernel(OpKernelConstruction* construction);
template <hvd_collective kCollective, bool kOrdered>
void* create_gpu_kernel(OpKernelConstruction* construction);
// For a GPU, where TensorFlow brings the tensors to the host and back. The first one warns of what that costs.
template <hvd_collective kCollective, bool kOrdered>
void* create_kernel_through_host(OpKernelConstruction* construction);
void run_kernel(void* kernel, OpKernelContext* context, AsyncDoneCallback* callback);
void delete_kernel(void* kernel);

// Reads the node's attributes; null, and the construction has failed, if that cannot be done.
CollectiveKernel* make_kernel(hvd_collective collective, bool ordered, bool on_gpu, OpKernelConstruction* construction);
void warn_of_way_through_host();

template <hvd_collective kCollective, bool kOrdered>
void* create_kernel(OpKernelConstruction* construction) {
  return make_kernel(kCollective, kOrdered, false, construction);
}

template <hvd_collective kCollective, bool kOrdered>
void* create_gpu_kernel(OpKernelConstruction* construction) {
  return make_kernel(kCollective, kOrdered, true, construction);
}

template <hvd_collective kCollective, bool kOrdered>
void* create_kernel_through_host(OpKernelConstruction* construction) {
  warn_of_way_through_host();
  return make_kernel(kCollective, kOrdered, false, construction);
}

// Which of its calls a node stands for that TensorFlow has copied from the body of a function into that of its caller:
// the names of the calls in the node's path, "/PartitionedCall_1". Empty: it is where it was made.
std::string call_path(const std::string& node);

// How TensorFlow is told of hvd's errors: Horovod's types, which scripts catch.
Code code_of(hvd_status status);

}  // namespace hvd::tf
