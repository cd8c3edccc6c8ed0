// The kernels of the collectives: one asynchronous kernel for all of them. The executor's thread that runs it starts
// the operation and returns; another thread completes it: one of hvd's or, on a GPU, gpu_waiter's. Ranks may therefore
// run their ops in any order with any number of threads.
#pragma once

#include <string>

#include "bindings/tensorflow/c_api.h"
#include "hvd.h"

namespace hvd::tf {

// What all runs of one node of a graph, or of one set of attributes in eager mode, have in common.
struct CollectiveKernel {
  hvd_collective collective;
  bool ordered;      // the last input of unordered ops is `unforeseen`: library.cc
  bool on_gpu;       // tensors are in the memory of the context's device
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
// For a GPU, where TensorFlow copies the tensors to the host and back. The first call logs a warning of the cost.
template <hvd_collective kCollective, bool kOrdered>
void* create_kernel_through_host(OpKernelConstruction* construction);
void run_kernel(void* kernel, OpKernelContext* context, AsyncDoneCallback* callback);
void delete_kernel(void* kernel);

// Reads the node's attributes; returns null, with the construction failed, if one cannot be read.
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

// Identifies the call that a node stems from if TensorFlow inlined a function into its caller: the names of the calls
// in the node's path, "/PartitionedCall_1". Empty if the node was not inlined.
std::string call_path(const std::string& node);

// The TensorFlow code for hvd's errors: Horovod's choice, which scripts catch.
Code code_of(hvd_status status);

}  // namespace hvd::tf
