// Performs hvd's collectives as calls of NCCL's that are enqueued in a stream.
//
//   allreduce      ncclAllReduce of each tensor
//   reducescatter  ncclReduceScatter if all ranks receive the same amount, otherwise an ncclReduce to each
//   allgather      ncclAllGather if all ranks contribute the same amount, otherwise an ncclBroadcast from each
//   broadcast      ncclBroadcast of each tensor
//   alltoall       ncclSend and ncclRecv to and from each rank with which data is exchanged
//
// All tensors of a call are one NCCL group, so that NCCL starts them together. Small tensors of an allreduce, and those
// that NCCL cannot scale, go through one packed buffer (packing.h), if there are kernels. Data that is only moved is
// moved as bytes, so that NCCL need not support its type.
//
// A joined rank takes part with neutral elements, in scratch memory. Used on the thread that drives the engine; the
// device's context must be current.
#pragma once

#include <memory>
#include <vector>

#include "core/base/clock.h"
#include "core/device/device_runtime.h"
#include "core/operation/collective_call.h"
#include "ops/cuda/bucket_kernels.h"
#include "ops/cuda/driver.h"
#include "ops/nccl/device_scratch.h"
#include "ops/nccl/nccl_communicator.h"

namespace hvd::nccl {

struct Place {
  NcclCommunicator& communicator;
  cuda::Driver& driver;
  DeviceRuntime& devices;
  DeviceScratch& scratch;
  const cuda::BucketKernels* kernels;  // null: not all ranks have them
  cuda::Stream stream;
  int device;
  int rank;  // in the call's set, and in the communicator
};

// Host memory that must stay valid until the call has ended.
using RetainedMemory = std::vector<std::shared_ptr<const void>>;

// Throws Unsupported, before anything has happened, if NCCL cannot perform the call.
void check_supported(const CollectiveCall& call, bool kernels);

// Returns when the call is in the stream. Throws the errors of NcclCommunicator, and Timeout at the deadline.
RetainedMemory put(const CollectiveCall& call, const Place& place, Deadline deadline);

}  // namespace hvd::nccl
