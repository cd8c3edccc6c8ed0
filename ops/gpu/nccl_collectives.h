// Performs hvd's collectives as calls of NCCL's that are enqueued in a stream.
//
//   allreduce      ncclAllReduce of each tensor
//   reducescatter  ncclReduceScatter if all ranks receive the same amount, otherwise an ncclReduce to each
//   allgather      ncclAllGather if all ranks contribute the same amount, otherwise an ncclBroadcast from each
//   broadcast      ncclBroadcast of each tensor
//   alltoall       ncclSend and ncclRecv to and from each rank with which data is exchanged
//
// All tensors of a call are one NCCL group, so that NCCL starts them together. Small tensors of an allreduce, and those
// that NCCL cannot scale, go through one packed buffer (reduction_plan.h), if there are kernels. Data that is only
// moved is moved as bytes, so that NCCL need not support its type.
//
// A joined rank takes part with neutral elements, in scratch memory. Used on the thread that drives the engine; the
// device's context must be current.
#pragma once

#include <algorithm>
#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/base/status.h"
#include "core/device/device_runtime.h"
#include "core/operation/collective_call.h"
#include "ops/gpu/bucket_kernels.h"
#include "ops/gpu/cuda_driver.h"
#include "ops/gpu/nccl_library.h"

namespace hvd::nccl {

// Device memory for packed buffers and for the missing tensors of a joined rank: taken piece by piece within a call,
// and reused from the start by the next call. That is safe without waiting, since all calls are in one stream. Nothing
// is freed before the end, because the driver would then wait for the whole device, and block the thread that drives
// the engine, which has to detect a stuck device.
class DeviceScratch {
 public:
  using OnBlock = std::function<void(void* memory, std::size_t bytes)>;
  DeviceScratch() = default;
  explicit DeviceScratch(OnBlock on_block) : on_block_(std::move(on_block)) {}

  // Called at the beginning of a call.
  void restart() { used_ = 0; }

  void* take(DeviceRuntime& devices, int device, std::size_t bytes) {
    bytes = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    if (blocks_.empty() || bytes > size_ - used_) {
      size_ = std::max(bytes, size_ * 2);
      used_ = 0;
      blocks_.push_back(devices.allocate(device, size_));
      if (on_block_) on_block_(blocks_.back().get(), size_);
    }
    void* const taken = static_cast<std::byte*>(blocks_.back().get()) + used_;
    used_ += bytes;
    return taken;
  }

 private:
  static constexpr std::size_t kAlignment = 256;

  const OnBlock on_block_;                     // called for each block that is allocated
  std::vector<std::shared_ptr<void>> blocks_;  // the last one is in use
  std::size_t size_ = 0, used_ = 0;            // of the last one
};

struct EnqueueContext {
  NcclCommunicator& communicator;
  cuda::Driver& driver;
  DeviceRuntime& devices;
  DeviceScratch& scratch;
  DeviceScratch& registered;           // the packed buffer of an allreduce: of the same size and offset on all ranks
  const cuda::BucketKernels* kernels;  // null: not all ranks have them
  cuda::Stream stream;
  int device;
  int rank;  // in the call's set, and in the communicator
};

// Host memory that must stay valid until the call has ended.
using RetainedMemory = std::vector<std::shared_ptr<const void>>;

// Why NCCL cannot perform the call; ok if it can.
Status objection_to(const CollectiveCall& call, bool kernels);

// Returns when the call is in the stream. Throws the errors of NcclCommunicator, and Timeout at the deadline.
RetainedMemory enqueue(const CollectiveCall& call, const EnqueueContext& context, Deadline deadline);

}  // namespace hvd::nccl
