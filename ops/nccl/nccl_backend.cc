#include "ops/nccl/nccl_backend.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "core/tensor/tensor.h"
#include "ops/cuda/cuda_event.h"

namespace hvd {

namespace {

std::string describe(const CollectiveCall& call, std::uint64_t number, int device) {
  return std::string(collective_name(call.collective)) + " number " + std::to_string(number) + " on GPU " +
         std::to_string(device) + " (" + std::to_string(call.pieces.size()) +
         (call.pieces.size() == 1 ? " tensor of " : " tensors of ") + dtype_name(call.dtype) + ", " +
         std::to_string(bytes_of(call.total_elements(), call.dtype)) + " bytes)";
}

// Timeout for the last operations, when the job ends without failure.
Duration end_timeout(const Config::Timeouts& timeouts) {
  return std::min<Duration>(std::chrono::seconds(5), timeouts.collective);
}

std::string seconds_text(Duration duration) {
  char text[32];
  std::snprintf(text, sizeof text, "%g s", seconds(duration));
  return text;
}

}  // namespace

NcclBackend::NcclBackend(Parts parts) : parts_(std::move(parts)), watchdog_(parts_.config.timeouts.collective) {}

// The stream is destroyed last: aborting the communicator empties it.
NcclBackend::~NcclBackend() {
  if (!driver_) return;
  try {
    const cuda::ContextScope context(*driver_, device_);
    if (parts_.abort.raised()) {
      give_up(parts_.abort.reason());
    } else if (communicator_ && !communicator_->close(deadline_after(end_timeout(parts_.config.timeouts)))) {
      give_up({StatusCode::shut_down, "hvd was shut down while an operation was under way on the GPU"});
    }
    if (stream_ != nullptr) driver_->call().destroy_stream(stream_);
    kernels_.reset();
  } catch (...) {  // a failed driver has nothing to release
  }
}

int NcclBackend::score(const CollectiveCall& call) const {
  const bool moves = call.collective != Collective::barrier && call.collective != Collective::join;
  return moves && call.device != kCpuDevice ? 100 : 0;
}

void NcclBackend::run(const CollectiveCall& call) {
  enqueued_.reset();
  if (call.entry == Entry::asking) {
    CollectiveCall ask;
    ask.collective = Collective::barrier;
    ask.set = call.set;
    ask.sequence = call.sequence;
    ask.entry = call.entry;
    ask.call_id = call.call_id;
    parts_.host.run(ask);
  }
  try {
    if (!verdict_) meet(call);
    if (!verdict_->ok()) {
      if (verdict_->code() == StatusCode::mismatch) throw Mismatch(verdict_->message());
      throw Unsupported(verdict_->message());
    }
    nccl::check_supported(call, kernels_ != nullptr);
  } catch (const Unsupported& why) {
    return run_through_host(call, why);
  } catch (const Mismatch& why) {
    return run_through_host(call, why);
  }
  enqueue(call);
}

void NcclBackend::run_through_host(const CollectiveCall& call, const Error& why) {
  if (!parts_.through_host) {
    if (why.code() == StatusCode::mismatch) throw Mismatch(why.what());
    throw Unsupported(why.what());
  }
  if (!std::exchange(warned_, true)) {
    parts_.log.warning(std::string("GPU tensors go through the host's memory (HVD_GPU_THROUGH_HOST=1): every byte is "
                                   "copied twice more, and the engine waits for it. Why: ") +
                       why.what());
  }
  CollectiveCall settled = call;
  settled.entry = Entry::settled;  // the other ranks have already asked
  parts_.through_host->run(settled, parts_.topology.rank);
}

// Atomic: either all ranks create the communicator, or the job ends.
void NcclBackend::meet(const CollectiveCall& call) {
  const auto ranks = nccl::introduce(parts_.host, call, introduce_this_rank(call));
  verdict_ = nccl::verdict_on(ranks, [this](int rank) { return parts_.topology.describe(rank); });
  if (!verdict_->ok()) return;
  const cuda::ContextScope context(*driver_, device_);
  const bool all_have_kernels =
      std::all_of(ranks.begin(), ranks.end(), [](const auto& one) { return one.kernels == 1; });
  if (!all_have_kernels) kernels_.reset();
  make_stream();
  communicator_ =
      std::make_unique<nccl::NcclCommunicator>(library_, ranks.front().id, parts_.topology.rank, parts_.topology.size,
                                               parts_.abort, deadline_after(parts_.config.timeouts.collective));
  parts_.log.info("GPU " + std::to_string(device_) + " of " + driver_->describe() + "; " + library_->describe());
}

// A joined rank that never had a GPU tensor takes part with the device that is most likely assigned to it.
nccl::Introduction NcclBackend::introduce_this_rank(const CollectiveCall& call) {
  nccl::Introduction own;
  try {
    driver_ = parts_.devices->driver();
    if (driver_->devices() == 0) throw Unsupported("there is no GPU");
    device_ = call.ordinal >= 0 ? call.ordinal : parts_.topology.local_rank % driver_->devices();
    library_ = std::make_shared<nccl::Library>(parts_.config.gpu.nccl_library);
    if (parts_.topology.rank == 0) library_->check(library_->call().unique_id(&own.id), "ncclGetUniqueId");
    load_kernels();
    own.version = library_->version();
    own.kernels = kernels_ ? 1 : 0;
    own.say(library_->describe());
  } catch (const Error& error) {
    own.version = 0;
    own.say(error.what());
  }
  return own;
}

// Without kernels fewer calls are supported, with the same results.
void NcclBackend::load_kernels() {
  const cuda::ContextScope context(*driver_, device_);
  try {
    kernels_ = std::make_unique<const cuda::BucketKernels>(driver_);
  } catch (const Error& error) {
    parts_.log.info(std::string("GPU tensors are not packed: ") + error.what());
  }
}

// Independent of the default stream, which would otherwise wait for it, and of high priority: others wait for
// communication.
void NcclBackend::make_stream() {
  int least = 0, greatest = 0;
  driver_->check(driver_->call().priority_range(&least, &greatest), "cuCtxGetStreamPriorityRange");
  driver_->check(driver_->call().create_stream(&stream_, cuda::kNonBlockingStream, greatest),
                 "cuStreamCreateWithPriority");
}

void NcclBackend::enqueue(const CollectiveCall& call) {
  if (call.ordinal >= 0 && call.ordinal != device_) {
    throw InvalidArgument("a tensor lies on GPU " + std::to_string(call.ordinal) +
                          ", but this rank took part with GPU " + std::to_string(device_) + " while it had joined");
  }
  forget_over();
  const cuda::ContextScope context(*driver_, device_);
  for (const Piece& piece : call.pieces) {
    if (piece.ready != nullptr) piece.ready->hold_up(stream_);
  }
  Running running{.number = ++calls_,
                  .text = describe(call, calls_, device_),
                  .begun = std::make_shared<cuda::RecordedEvent>(driver_, device_, stream_),
                  .completion = nullptr,
                  .retained = {}};
  const nccl::Place place{.communicator = *communicator_,
                          .driver = *driver_,
                          .devices = *parts_.devices,
                          .scratch = scratch_,
                          .kernels = kernels_.get(),
                          .stream = stream_,
                          .device = device_,
                          .rank = parts_.topology.rank};
  running.retained = nccl::put(call, place, deadline_after(parts_.config.timeouts.collective));
  running.completion =
      std::make_shared<DeviceCompletion>(std::make_shared<cuda::RecordedEvent>(driver_, device_, stream_));
  enqueued_ = running.completion;
  running_.push_back(std::move(running));
}

void NcclBackend::forget_over() {
  while (!running_.empty() && running_.front().completion->done()) {
    const Status status = running_.front().completion->status();
    if (!status.ok()) throw Error(status);
    running_.pop_front();
  }
}

Deadline NcclBackend::watch(TimePoint now) {
  if (running_.empty()) return Deadline::max();
  forget_over();
  if (running_.empty()) return Deadline::max();
  const cuda::ContextScope context(*driver_, device_);
  communicator_->check();
  const Running& oldest = running_.front();
  if (watchdog_.expired(now, oldest.number, oldest.begun->happened())) {
    throw Timeout(oldest.text + " has not ended within " + seconds_text(parts_.config.timeouts.collective) +
                  ": a rank is stuck, or does not take part");
  }
  return now + kAbortPollInterval;
}

// Completions fail first: when the GPU stops, waiting threads must know that its results are invalid.
void NcclBackend::give_up(const Status& reason) noexcept {
  for (const Running& running : running_) running.completion->give_up(reason);
  if (!communicator_) return;
  try {
    const cuda::ContextScope context(*driver_, device_);
    communicator_->break_off();
  } catch (...) {
    communicator_->break_off();
  }
}

}  // namespace hvd
