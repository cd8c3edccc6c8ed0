#include "ops/gpu/nccl_backend.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <deque>
#include <type_traits>
#include <utility>

#include "core/base/error.h"
#include "core/tensor/tensor.h"
#include "ops/gpu/bucket_kernels.h"
#include "ops/gpu/nccl_collectives.h"

namespace hvd::nccl {

static_assert(std::is_trivially_copyable_v<NcclRankInfo>);

void NcclRankInfo::set_text(const std::string& what) {
  const std::size_t length = std::min(what.size(), sizeof text - 1);
  std::memcpy(text, what.data(), length);
  text[length] = '\0';
}

// Received texts need not be zero-terminated.
std::string NcclRankInfo::text_string() const { return {text, strnlen(text, sizeof text)}; }

std::vector<NcclRankInfo> exchange_rank_info(Backend& cpu_backend, const CollectiveCall& about,
                                             const NcclRankInfo& own) {
  const auto ranks = static_cast<std::size_t>(about.set->size());
  std::vector<NcclRankInfo> all(ranks);
  CollectiveCall call;
  call.collective = Collective::allgather;
  call.dtype = DType::uint8;
  call.set = about.set;
  call.sequence = about.sequence;
  call.driving_thread = about.driving_thread;
  call.pieces = {{.input = &own, .output = all.data(), .elements = sizeof own}};
  call.counts = {std::vector<std::int64_t>(ranks, sizeof own)};
  cpu_backend.run(call);
  return all;
}

Status check_compatible(const std::vector<NcclRankInfo>& ranks, const std::function<std::string(int)>& describe_rank) {
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (ranks[rank].version != 0) continue;
    return {StatusCode::unsupported,
            "GPU tensors need the CUDA driver and NCCL on every rank, but on " + describe_rank(static_cast<int>(rank)) +
                " " + ranks[rank].text_string() +
                ". Install NCCL (nvidia-nccl-cu12), or name it with HVD_NCCL_LIB; or set HVD_GPU_THROUGH_HOST=1, and "
                "they go through the host's memory, which is slow"};
  }
  for (std::size_t rank = 1; rank < ranks.size(); ++rank) {
    if (ranks[rank].version == ranks[0].version) continue;
    return {StatusCode::mismatch, "all ranks need the same version of NCCL, but " + describe_rank(0) + " has " +
                                      ranks[0].text_string() + " and " + describe_rank(static_cast<int>(rank)) +
                                      " has " + ranks[rank].text_string() + ": HVD_NCCL_LIB names one"};
  }
  return {};
}

Watchdog::Watchdog(Duration limit) : limit_(limit) {}

bool Watchdog::expired(TimePoint now, std::uint64_t oldest, bool begun) {
  if (oldest != oldest_) {
    oldest_ = oldest;
    since_.reset();
  }
  if (begun && !since_) since_ = now;
  return since_ && now - *since_ >= limit_;
}

}  // namespace hvd::nccl

namespace hvd {

namespace {

// An operation in the stream, for the message that it has not ended.
struct Description {
  Collective collective;
  DType dtype;
  std::size_t tensors, bytes;

  std::string text(std::uint64_t number, int device) const {
    return std::string(collective_name(collective)) + " number " + std::to_string(number) + " on GPU " +
           std::to_string(device) + " (" + std::to_string(tensors) + (tensors == 1 ? " tensor of " : " tensors of ") +
           dtype_name(dtype) + ", " + std::to_string(bytes) + " bytes)";
  }
};

Description describe(const CollectiveCall& call) {
  return {.collective = call.collective,
          .dtype = call.dtype,
          .tensors = call.pieces.size(),
          .bytes = bytes_of(call.total_elements(), call.dtype)};
}

using Events = std::vector<std::shared_ptr<const DeviceEvent>>;

// The events after which all tensors of the call may be accessed: for each stream the last one. Usually all tensors are
// ready in one stream.
Events inputs_of(const CollectiveCall& call) {
  Events inputs;
  const DeviceEvent* last = nullptr;
  for (const Piece& piece : call.pieces) {
    if (piece.ready == nullptr || piece.ready == last) continue;
    if (last != nullptr && piece.ready->precedes(*last)) continue;
    if (last != nullptr && last->precedes(*piece.ready)) inputs.pop_back();
    last = piece.ready;
    inputs.push_back(last->shared_from_this());
  }
  return inputs;
}

bool is_ready_in_capture(const Piece& piece) { return piece.ready != nullptr && piece.ready->captured(); }

// Whether the call becomes part of a graph into which the program captures its streams.
bool is_captured(const CollectiveCall& call) {
  const auto captured = std::ranges::count_if(call.pieces, is_ready_in_capture);
  if (captured == 0) return false;
  if (static_cast<std::size_t>(captured) == call.pieces.size()) return true;
  throw Unsupported(
      "some tensors of this operation are ready in a stream that is being captured into a graph, and some in one that "
      "is not: capture all of them, or none");
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

class NcclBackend final : public Backend {
 public:
  explicit NcclBackend(NcclParts parts) : parts_(std::move(parts)), watchdog_(parts_.config.timeouts.collective) {}

  // The stream is destroyed last: aborting the communicator empties it.
  ~NcclBackend() override {
    if (!driver_) return;
    try {
      const cuda::ContextScope context(*driver_, device_);
      if (parts_.abort.raised()) {
        give_up(parts_.abort.reason());
      } else if (communicator_ && !communicator_->close(deadline_after(end_timeout(parts_.config.timeouts)))) {
        give_up({StatusCode::shut_down, "hvd was shut down while an operation was under way on the GPU"});
      }
      for (cuda::Stream stream : {stream_, capture_stream_}) {
        if (stream != nullptr) driver_->call().streams.destroy(stream);
      }
      kernels_.reset();
    } catch (...) {  // a failed driver has nothing to release
    }
  }

  const char* name() const override { return "nccl"; }
  int score(const CollectiveCall& call) const override {
    const bool moves = call.collective != Collective::barrier && call.collective != Collective::join;
    return moves && call.device != kCpuDevice ? 100 : 0;
  }

  void run(const CollectiveCall& call) override {
    enqueued_.reset();
    if (call.entry == EntryMode::asking) {
      CollectiveCall ask;
      ask.collective = Collective::barrier;
      ask.set = call.set;
      ask.sequence = call.sequence;
      ask.entry = call.entry;
      ask.call_id = call.call_id;
      ask.driving_thread = call.driving_thread;
      parts_.cpu_backend.run(ask);
    }
    if (!availability_) create_communicator(call);
    const Status objection = availability_->ok() ? nccl::objection_to(call, kernels_ != nullptr) : *availability_;
    if (!objection.ok()) return run_through_host(call, objection);
    enqueue(call);
  }

  bool can_be_asked(const ProcessSet& set) const override { return parts_.cpu_backend.can_be_asked(set); }
  std::shared_ptr<DeviceCompletion> enqueued() const override { return enqueued_; }
  Deadline watch(TimePoint now) override {
    if (running_.empty()) return Deadline::max();
    const cuda::ContextScope context(*driver_, device_);
    forget_over();
    if (running_.empty()) return Deadline::max();
    communicator_->check();
    Running& oldest = running_.front();
    while (!oldest.inputs.empty() && oldest.inputs.back()->happened()) oldest.inputs.pop_back();
    if (watchdog_.expired(now, oldest.number, oldest.inputs.empty())) {
      throw Timeout(oldest.description.text(oldest.number, device_) + " has not ended within " +
                    seconds_text(parts_.config.timeouts.collective) + ": a rank is stuck, or does not take part");
    }
    return now + kAbortPollInterval;
  }

  // Completions fail first: when the GPU stops, waiting threads must know that its results are invalid.
  void give_up(const Status& reason) noexcept override {
    for (const Running& running : running_) running.completion->give_up(reason);
    if (!communicator_) return;
    try {
      const cuda::ContextScope context(*driver_, device_);
      communicator_->abort();
    } catch (...) {
      communicator_->abort();
    }
  }

 private:
  struct Running {
    std::uint64_t number;
    Description description;
    Events inputs;  // those that were still pending at the last query
    std::shared_ptr<DeviceCompletion> completion;
    nccl::RetainedMemory retained;
  };

  // Memory that a graph of the program refers to.
  struct Captured {
    nccl::DeviceScratch scratch;
    nccl::RetainedMemory retained;
  };

  // Atomic: either all ranks create the communicator, or the job ends.
  void create_communicator(const CollectiveCall& call) {
    const auto ranks = nccl::exchange_rank_info(parts_.cpu_backend, call, prepare_rank_info(call));
    availability_ = nccl::check_compatible(ranks, [this](int rank) { return parts_.topology.describe(rank); });
    if (!availability_->ok()) return;
    const cuda::ContextScope context(*driver_, device_);
    const bool all_have_kernels =
        std::all_of(ranks.begin(), ranks.end(), [](const auto& one) { return one.kernels == 1; });
    if (!all_have_kernels) kernels_.reset();
    stream_ = make_stream();
    communicator_ =
        std::make_unique<nccl::NcclCommunicator>(library_, ranks.front().id, parts_.topology.rank, parts_.topology.size,
                                                 parts_.abort, deadline_after(parts_.config.timeouts.collective));
    parts_.log.info("GPU " + std::to_string(device_) + " of " + driver_->describe() + "; " + library_->describe());
  }

  // A joined rank that never had a GPU tensor takes part with the device that is most likely assigned to it: by its
  // local rank in the job. Its local rank in a process set may be the number of another rank's device, and NCCL refuses
  // a communicator that has a device twice.
  nccl::NcclRankInfo prepare_rank_info(const CollectiveCall& call) {
    nccl::NcclRankInfo own;
    try {
      driver_ = parts_.devices->driver();
      if (driver_->devices() == 0) throw Unsupported("there is no GPU");
      device_ = call.ordinal >= 0 ? call.ordinal : parts_.topology.job_local_rank % driver_->devices();
      library_ = std::make_shared<nccl::Library>(parts_.config.gpu.nccl_library);
      if (parts_.topology.rank == 0) library_->check(library_->call().unique_id(&own.id), "ncclGetUniqueId");
      load_kernels();
      own.version = library_->version();
      own.kernels = kernels_ ? 1 : 0;
      own.set_text(library_->describe());
    } catch (const Error& error) {
      own.version = 0;
      own.set_text(error.what());
    }
    return own;
  }

  // Without kernels fewer calls are supported, with the same results.
  void load_kernels() {
    const cuda::ContextScope context(*driver_, device_);
    try {
      kernels_ = std::make_unique<const cuda::BucketKernels>(driver_);
    } catch (const Error& error) {
      parts_.log.info(std::string("GPU tensors are not packed: ") + error.what());
    }
  }

  // Independent of the default stream, which would otherwise wait for it, and of high priority: others wait for
  // communication.
  cuda::Stream make_stream() {
    cuda::Stream made = nullptr;
    int least = 0, greatest = 0;
    driver_->check(driver_->call().streams.priority_range(&least, &greatest), "cuCtxGetStreamPriorityRange");
    driver_->check(driver_->call().streams.create(&made, cuda::kNonBlockingStream, greatest),
                   "cuStreamCreateWithPriority");
    return made;
  }

  void enqueue(const CollectiveCall& call) {
    if (call.ordinal >= 0 && call.ordinal != device_) {
      throw InvalidArgument("a tensor lies on GPU " + std::to_string(call.ordinal) +
                            ", but this rank took part with GPU " + std::to_string(device_) + " while it had joined");
    }
    const cuda::ContextScope context(*driver_, device_);
    if (is_captured(call)) return capture(call);
    forget_over();
    Running running{.number = ++calls_,
                    .description = describe(call),
                    .inputs = inputs_of(call),
                    .completion = nullptr,
                    .retained = {}};
    for (const auto& input : running.inputs) input->hold_up(stream_);
    running.retained = enqueue_group(call, scratch_, registered_, stream_);
    running.completion = std::make_shared<DeviceCompletion>(parts_.devices->record(device_, stream_));
    enqueued_ = running.completion;
    running_.push_back(std::move(running));
  }

  nccl::RetainedMemory enqueue_group(const CollectiveCall& call, nccl::DeviceScratch& scratch,
                                     nccl::DeviceScratch& registered, cuda::Stream stream) {
    const nccl::EnqueueContext context{.communicator = *communicator_,
                                       .driver = *driver_,
                                       .devices = *parts_.devices,
                                       .scratch = scratch,
                                       .registered = registered,
                                       .kernels = kernels_.get(),
                                       .stream = stream,
                                       .device = device_,
                                       .rank = parts_.topology.rank};
    return nccl::enqueue(call, context, deadline_after(parts_.config.timeouts.collective));
  }

  // A stream that waits for a captured event joins the capture until the program ends it, so captured calls use a
  // second stream. Each has its own scratch memory, because its graph may run concurrently with other work. The
  // watchdog does not see graph launches.
  void capture(const CollectiveCall& call) {
    const cuda::CaptureModeGuard relaxed(*driver_);
    if (capture_stream_ == nullptr) capture_stream_ = make_stream();
    for (const auto& input : inputs_of(call)) input->hold_up(capture_stream_);
    Captured& captured = captured_.emplace_back();
    captured.retained = enqueue_group(call, captured.scratch, captured.scratch, capture_stream_);
    enqueued_ = std::make_shared<DeviceCompletion>(parts_.devices->record(device_, capture_stream_));
  }

  void run_through_host(const CollectiveCall& call, const Status& why) {
    if (std::ranges::any_of(call.pieces, is_ready_in_capture)) {
      throw Unsupported("an operation on tensors whose stream is being captured into a graph needs NCCL: " +
                        why.message());
    }
    if (!parts_.through_host) {
      if (why.code() == StatusCode::mismatch) throw Mismatch(why.message());
      throw Unsupported(why.message());
    }
    if (!std::exchange(warned_, true)) {
      parts_.log.warning(
          "GPU tensors go through the host's memory (HVD_GPU_THROUGH_HOST=1): every byte is copied twice more, and the "
          "engine waits for the copies. The reason: " +
          why.message());
    }
    CollectiveCall agreed = call;
    agreed.entry = EntryMode::negotiated;  // the other ranks have already asked
    parts_.through_host(agreed, parts_.topology.rank);
  }

  void forget_over() {
    while (!running_.empty() && running_.front().completion->done()) {
      const Status status = running_.front().completion->status();
      if (!status.ok()) throw Error(status);
      running_.pop_front();
    }
  }

  NcclParts parts_;
  std::optional<Status> availability_;  // of NCCL, on all ranks; empty: not known yet
  std::shared_ptr<const nccl::Library> library_;
  std::shared_ptr<cuda::Driver> driver_;
  std::unique_ptr<nccl::NcclCommunicator> communicator_;
  int device_ = -1;
  std::unique_ptr<const cuda::BucketKernels> kernels_;  // null: not all ranks have them
  cuda::Stream stream_ = nullptr;
  cuda::Stream capture_stream_ = nullptr;  // null: nothing was captured yet
  nccl::DeviceScratch scratch_;
  nccl::DeviceScratch registered_{[this](void* memory, std::size_t bytes) {
    communicator_->register_memory(memory, bytes, deadline_after(parts_.config.timeouts.collective));
  }};
  std::deque<Captured> captured_;
  std::deque<Running> running_;  // in the stream, in its order
  std::uint64_t calls_ = 0;
  nccl::Watchdog watchdog_;
  std::shared_ptr<DeviceCompletion> enqueued_;
  bool warned_ = false;
};

}  // namespace

std::unique_ptr<Backend> make_nccl_backend(NcclParts parts) { return std::make_unique<NcclBackend>(std::move(parts)); }

}  // namespace hvd
