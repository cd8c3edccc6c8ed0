// The kernels: one asynchronous kernel for all collectives, and those that return rank and size of this process.
//
// The executor's thread that runs a collective's kernel starts the operation and returns; another thread completes it:
// one of hvd's or, on a GPU, one of this library's (operation.cc). Ranks may therefore run their ops in any order with
// any number of threads. In eager mode the thread that runs the kernel waits for its end: there it performs operations
// on CPU tensors itself, as in other synchronous calls, and no other thread is woken.
#pragma once

#include <string>

#include "bindings/tensorflow/c_api.h"
#include "hvd.h"

namespace hvd::tf {

// What all runs of one node of a graph, or of one set of attributes in eager mode, have in common.
struct CollectiveKernel {
  hvd_collective collective;
  bool ordered;        // the last input of unordered ops is `unforeseen`: library.cc
  bool on_gpu;         // tensors are in the memory of the context's device
  bool waits = false;  // the thread that runs the kernel waits for it anyway, as in eager mode
  std::string name;    // empty: numbered by hvd
  std::int32_t process_set = HVD_GLOBAL_PROCESS_SET;
  std::int32_t reduce_op = HVD_SUM;
  std::int32_t root_rank = 0;
  double prescale = 1;
  double postscale = 1;
};

// Where a kernel's tensors are. For a GPU they may be in the host's memory, to which TensorFlow copies them and back:
// the first such kernel logs a warning of the cost.
enum class Memory { cpu, gpu, gpu_through_host };

// For TF_NewAsyncKernelBuilder(). make_kernel() reads the node's attributes; it returns null, with the construction
// failed, if one cannot be read.
CollectiveKernel* make_kernel(hvd_collective collective, bool ordered, Memory memory,
                              OpKernelConstruction* construction);
template <hvd_collective kCollective, bool kOrdered, Memory kMemory>
void* create_kernel(OpKernelConstruction* construction) {
  return make_kernel(kCollective, kOrdered, kMemory, construction);
}
void run_kernel(void* kernel, OpKernelContext* context, AsyncDoneCallback* callback);
void delete_kernel(void* kernel);

// Values of this process, evaluated at run time: a saved graph may run in another job.
enum class TopologyQuery { rank, local_rank, size, local_size, included };

// For TF_NewKernelBuilder().
void* make_topology_kernel(TopologyQuery query, OpKernelConstruction* construction);
template <TopologyQuery kQuery>
void* create_topology_kernel(OpKernelConstruction* construction) {
  return make_topology_kernel(kQuery, construction);
}
void run_topology_kernel(void* kernel, OpKernelContext* context);
void delete_topology_kernel(void* kernel);

// The TensorFlow code for hvd's errors: Horovod's choice, which scripts catch.
Code code_of(hvd_status status);

}  // namespace hvd::tf
