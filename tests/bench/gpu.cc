// What a bucket of GPU tensors costs the host: the NCCL backend against the same calls made directly, over the fake
// driver and the fake NCCL (tests/support), where no GPU is needed.
//
//   bench_gpu [BUCKETS]
//
// One rank, so that nothing waits for another. The two sides take turns; each bucket's tensors are written by a stream
// of their own, and another one waits for what comes out, as in training. The table has the calls of CUDA's driver and
// of NCCL's for a bucket, and the host's time for it in microseconds: the fastest, and the median of all buckets. The
// fakes' own time is in both.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "core/base/clock.h"
#include "tests/support/fake_gpu.h"
#include "tests/support/lone_nccl.h"

namespace {

using namespace hvd;
using testing::FakeGpu;

constexpr int kWarmUp = 200;
constexpr std::size_t kFloats = 64;  // of a tensor
const Deadline kNever = Deadline::max();

// The tensors of a bucket, the stream that writes them and the one that reads them.
struct Tensors {
  Tensors(const FakeGpu& gpu, std::size_t count) : writes(gpu, 0), reads(gpu, 0) {
    for (std::size_t i = 0; i < count; ++i) memory.emplace_back(gpu, 0, kFloats * sizeof(float));
  }

  FakeGpu::Stream writes, reads;
  std::vector<FakeGpu::Block> memory;
};

// One way to reduce a bucket; the fastest and the median time.
struct Timed {
  std::vector<double> microseconds;
  int driver_calls = 0, nccl_calls = 0;

  double median() {
    std::sort(microseconds.begin(), microseconds.end());
    return microseconds[microseconds.size() / 2];
  }
};

// The calls that cannot be spared: both streams wait, and each tensor is a call of one group.
class Direct {
 public:
  explicit Direct(testing::LoneNccl& lone)
      : driver_(lone.devices().driver()),
        library_(std::make_shared<nccl::Library>(lone.config().gpu.nccl_library)),
        context_(*driver_, 0) {
    nccl::UniqueId id;
    library_->check(library_->call().unique_id(&id), "ncclGetUniqueId");
    communicator_ = std::make_unique<nccl::NcclCommunicator>(library_, id, 0, 1, lone.abort(), kNever);
    driver_->check(driver_->call().streams.create(&stream_, cuda::kNonBlockingStream, 0), "cuStreamCreate");
    driver_->check(driver_->call().events.create(&begin_, cuda::kEventWithoutTiming), "cuEventCreate");
    driver_->check(driver_->call().events.create(&end_, cuda::kEventWithoutTiming), "cuEventCreate");
  }
  ~Direct() {
    communicator_->close(kNever);
    driver_->call().events.destroy(begin_);
    driver_->call().events.destroy(end_);
    driver_->call().streams.destroy(stream_);
  }
  Direct(const Direct&) = delete;
  Direct& operator=(const Direct&) = delete;

  void reduce(const Tensors& tensors) {
    const auto& streams = driver_->call().streams;
    const auto& events = driver_->call().events;
    const nccl::Table& nccl = library_->call();
    driver_->check(events.record(begin_, static_cast<cuda::Stream>(tensors.writes.handle())), "cuEventRecord");
    driver_->check(streams.wait_event(stream_, begin_, 0), "cuStreamWaitEvent");
    library_->check(nccl.group_start(), "ncclGroupStart");
    for (const FakeGpu::Block& block : tensors.memory) {
      library_->check(nccl.collective.allreduce(block.data(), block.data(), kFloats, nccl::Type::float32, nccl::Op::sum,
                                                communicator_->handle(), stream_),
                      "ncclAllReduce");
    }
    communicator_->complete(nccl.group_end(), "ncclGroupEnd", kNever);
    driver_->check(events.record(end_, stream_), "cuEventRecord");
    driver_->check(streams.wait_event(static_cast<cuda::Stream>(tensors.reads.handle()), end_, 0), "cuStreamWaitEvent");
  }

 private:
  const std::shared_ptr<cuda::Driver> driver_;
  const std::shared_ptr<const nccl::Library> library_;
  const cuda::ContextScope context_;
  std::unique_ptr<nccl::NcclCommunicator> communicator_;
  cuda::Stream stream_ = nullptr;
  cuda::Event begin_ = nullptr, end_ = nullptr;
};

// As the engine has it: an event for each tensor, one call of the backend, a look at what is under way, and the reader
// waits for what was enqueued.
class ByBackend {
 public:
  void reduce(const Tensors& tensors) {
    std::vector<Piece> pieces;
    ready_.clear();
    for (const FakeGpu::Block& block : tensors.memory) {
      ready_.push_back(lone_.devices().record(0, tensors.writes.handle()));
      pieces.push_back(
          {.input = block.data(), .output = block.data(), .elements = kFloats, .ready = ready_.back().get()});
    }
    const auto end = lone_.allreduce(std::move(pieces));
    lone_.watch();
    end->hold_up(tensors.reads.handle());
  }

  testing::LoneNccl& lone() { return lone_; }

 private:
  testing::LoneNccl lone_;
  std::vector<std::shared_ptr<const DeviceEvent>> ready_;
};

void measure(const FakeGpu& gpu, Tensors& tensors, auto& way, Timed& timed) {
  const int driver_before = gpu.cuda().calls("cu"), nccl_before = gpu.nccl().calls("nccl");
  const TimePoint started = Clock::now();
  way.reduce(tensors);
  timed.microseconds.push_back(seconds(Clock::now() - started) * 1e6);
  timed.driver_calls = gpu.cuda().calls("cu") - driver_before;
  timed.nccl_calls = gpu.nccl().calls("nccl") - nccl_before;
  tensors.reads.drain();
}

void print(std::size_t count, const char* way, Timed& timed) {
  const double median = timed.median();
  std::printf("%7zu  %-7s %6d %6d %9.2f %9.2f\n", count, way, timed.driver_calls, timed.nccl_calls,
              timed.microseconds.front(), median);
}

}  // namespace

int main(int argc, char** argv) {
  const int buckets = argc > 1 ? std::max(1, std::atoi(argv[1])) : 2000;
  const FakeGpu gpu(1, 0);
  std::printf("tensors  by      driver   NCCL  fastest    median\n");
  for (const std::size_t count : {std::size_t{1}, std::size_t{4}, std::size_t{40}}) {
    Tensors tensors(gpu, count);
    ByBackend backend;
    Direct direct(backend.lone());
    Timed directly, by_backend;
    for (int i = 0; i < kWarmUp + buckets; ++i) {
      if (i == kWarmUp) directly.microseconds.clear(), by_backend.microseconds.clear();
      measure(gpu, tensors, direct, directly);
      measure(gpu, tensors, backend, by_backend);
    }
    print(count, "direct", directly);
    print(count, "hvd", by_backend);
  }
}
