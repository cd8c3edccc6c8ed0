// One run of a collective's kernel, from TensorFlow's call to its callback: takes the inputs from the context and
// creates the outputs, starts the operation, and finishes on the thread that completes it.
//
// Allreduces and broadcasts write their results into their inputs' memory if TensorFlow does not need the inputs any
// longer: memory that is new to the process costs a page fault for every 4 KiB. Outputs whose shapes are known only
// after the operation are allocated by hvd and passed to TensorFlow without a copy, in a GPU's memory, too, as
// TensorFlow does with tensors that it receives by DLPack.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bindings/tensorflow/c_api.h"
#include "bindings/tensorflow/kernels.h"
#include "hvd.h"

namespace hvd::tf {

// The completion callback of an asynchronous kernel.
//
// The C API passes a kernel the address of a std::function<void()> that is a parameter of TensorFlow's own function,
// and destroyed when the kernel's function returns: TF_RunAsyncOpKernelDoneCallback() can only be called before that
// (tensorflow/c/kernels.cc, COpKernel's ComputeAsync). Therefore it is copied on entry, and the copy is called. That
// requires libstdc++'s std::function on both sides, whose layout has not changed since GCC 5 and does not depend on its
// ABI switch; find_c_api() refuses a TensorFlow built with another library. It is copied, not moved, because a later
// TensorFlow might still use the object. Intel's plugin for TensorFlow does the same.
using Done = std::function<void()>;

inline Done copied(AsyncDoneCallback* callback) { return *reinterpret_cast<const Done*>(callback); }

class Operation {
 public:
  // In all cases `done` is called once, and the operation deletes itself.
  static void start(const CollectiveKernel& kernel, OpKernelContext* context, Done done);

 private:
  Operation(const CollectiveKernel& kernel, OpKernelContext* context, Done done);
  ~Operation();

  // Each returns false after it has set the error on the context.
  bool take_tensors();
  bool take_splits();
  bool take_tensor(int i);
  bool submit();
  static void on_done(void* operation);
  void end();
  void set_results();
  bool set_output(int index, std::size_t i);
  bool set_received_splits();
  bool set_last_joined();

  bool fail(Code code, const std::string& message);
  bool fail(hvd_status status);
  void finish();

  const CollectiveKernel& kernel_;  // owned by TensorFlow, valid until done
  OpKernelContext* const context_;
  const Done done_;
  const std::int32_t device_;
  const bool in_place_;  // as many outputs as inputs, of the same shapes
  OwnedStatus status_;
  std::vector<OwnedTensor> held_;                  // kept while hvd reads or writes them
  std::vector<std::vector<std::int64_t>> shapes_;  // by tensor
  std::vector<hvd_tensor> inputs_;
  std::vector<hvd_tensor> outputs_;
  std::vector<std::int64_t> splits_;  // alltoall; empty: equal parts
  hvd_work* work_ = nullptr;
};

}  // namespace hvd::tf
