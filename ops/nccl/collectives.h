// hvd's collectives as calls of NCCL's, put into a stream.
//
//   allreduce      ncclAllReduce of each tensor
//   reducescatter  ncclReduceScatter if all ranks get equally much, else an ncclReduce to each
//   allgather      ncclAllGather if all ranks give equally much, else an ncclBroadcast from each
//   broadcast      ncclBroadcast of each tensor
//   alltoall       ncclSend and ncclRecv to and from each rank that there is something for
//
// All tensors of a call are one group, so that NCCL starts them together. Small ones of an allreduce, and what NCCL
// cannot scale, go through one packed buffer (packing.h), if there are kernels. What is only moved, is moved as bytes,
// so that NCCL need not know its type.
//
// A rank that has joined takes part with neutral elements, in scratch memory. Whoever drives the engine; the device's
// context is to be current.
#pragma once

#include <memory>
#include <vector>

#include "core/base/clock.h"
#include "core/collective/collective_call.h"
#include "core/device/device_runtime.h"
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
  int rank;  // in the call's set, as in the communicator
};

// Memory of the host that must stay as long as the call is under way.
using RetainedMemory = std::vector<std::shared_ptr<const void>>;

// Throws Unsupported, before anything has happened, where NCCL cannot do it.
void check_supported(const CollectiveCall& call, bool kernels);

// Returns when the call is in the stream. Throws what NcclCommunicator throws, Timeout at the deadline.
RetainedMemory put(const CollectiveCall& call, const Place& place, Deadline deadline);

}  // namespace hvd::nccl
