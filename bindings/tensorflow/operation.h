// One run of a collective's kernel, from TensorFlow's call to its callback: takes the inputs and makes the outputs out
// of what the context has, starts the operation, and finishes on whichever thread hears of its end.
//
// Allreduces and broadcasts have their results in the memory of their inputs, where TensorFlow needs those no longer:
// memory that the kernel did not get before costs a page fault for every 4 KiB. Outputs whose shapes only the operation
// itself finds out are made by hvd, and given to TensorFlow as they are: also in a GPU's memory, as TensorFlow does
// with tensors that come by DLPack.
#pragma once

#include <memory>
#include <vector>

#include "bindings/tensorflow/collective_kernel.h"
#include "bindings/tensorflow/done_callback.h"
#include "bindings/tensorflow/handles.h"

namespace hvd::tf {

class Operation {
 public:
  // Whatever comes of it, `done` is called once, and the operation deletes itself.
  static void start(const CollectiveKernel& kernel, OpKernelContext* context, Done done);

 private:
  Operation(const CollectiveKernel& kernel, OpKernelContext* context, Done done);
  ~Operation();

  // False: the context knows why.
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

  const CollectiveKernel& kernel_;  // TensorFlow keeps it until done
  OpKernelContext* const context_;
  const Done done_;
  const std::int32_t device_;
  const bool in_place_;  // as many outputs as inputs, of the same shapes
  OwnedStatus status_;
  std::vector<OwnedTensor> held_;                  // as long as hvd reads or writes them
  std::vector<std::vector<std::int64_t>> shapes_;  // by tensor
  std::vector<hvd_tensor> inputs_;
  std::vector<hvd_tensor> outputs_;
  std::vector<std::int64_t> splits_;  // alltoall; empty: equal parts
  hvd_work* work_ = nullptr;
};

}  // namespace hvd::tf
