#include "tests/bench/workload.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "core/base/error.h"

namespace hvd::bench {

namespace {

constexpr std::size_t kAlignment = 4096;
constexpr int kManyCalls = 300;

// Element i of what a rank contributes is (i + shift) % kPeriod. The period is prime, so that it is in step with no
// chunk, slice or tensor.
constexpr std::int64_t kPeriod = 1021;

std::int64_t shift(int rank, int round) { return (std::int64_t{131} * rank + std::int64_t{17} * round) % kPeriod; }

// kPeriod values that repeat for ever; copied and compared in blocks, since that is most of a benchmark's time.
class Pattern {
 public:
  void add(std::int64_t phase) {
    for (std::int64_t i = 0; i < kPeriod; ++i) at(i) += static_cast<float>((i + phase) % kPeriod);
  }
  void multiply(float factor) {
    for (float& value : values_) value *= factor;
  }

  // The values from number `first` on.
  void write(float* target, std::int64_t first, std::int64_t count) const {
    for_blocks(first, count, [&](std::int64_t done, const float* block, std::size_t bytes) {
      std::memcpy(target + done, block, bytes);
      return true;
    });
  }
  bool matches(const float* data, std::int64_t first, std::int64_t count) const {
    bool same = true;
    for_blocks(first, count, [&](std::int64_t done, const float* block, std::size_t bytes) {
      return same = std::memcmp(data + done, block, bytes) == 0;
    });
    return same;
  }

 private:
  float& at(std::int64_t i) { return values_[static_cast<std::size_t>(i)]; }

  template <typename Visit>
  void for_blocks(std::int64_t first, std::int64_t count, const Visit& visit) const {
    for (std::int64_t done = 0; done < count;) {
      const std::int64_t start = (first + done) % kPeriod;
      const std::int64_t length = std::min(kPeriod - start, count - done);
      if (!visit(done, values_.data() + start, static_cast<std::size_t>(length) * sizeof(float))) return;
      done += length;
    }
  }

  std::array<float, kPeriod> values_{};
};

Pattern contribution(int rank, int round) {
  Pattern pattern;
  pattern.add(shift(rank, round));
  return pattern;
}

Pattern sum(int ranks, int round) {
  Pattern pattern;
  for (int rank = 0; rank < ranks; ++rank) pattern.add(shift(rank, round));
  return pattern;
}

void require(bool right, const char* what, std::size_t tensor) {
  if (!right) throw Internal(std::string("wrong values in ") + what + " of tensor " + std::to_string(tensor));
}

}  // namespace

Workload::Workload(const WorkloadOptions& options, int rank, const ProcessSet& everyone)
    : options_(options), rank_(rank), ranks_(everyone.size()) {
  call_.collective = options.collective;
  call_.set = &everyone;
  call_.driving_thread = DrivingThread::caller;  // this thread does nothing else, as in a program's synchronous call
  // The last rank, because rank 0 has the clock and a root may be done before anyone has its data.
  call_.root = ranks_ - 1;
  if (options.in_place && options.collective != Collective::allreduce) {
    throw InvalidArgument("--in-place is for allreduce");
  }
  const auto elements = static_cast<std::int64_t>(options.bytes / sizeof(float)) / options.tensors;
  const std::int64_t block = elements / ranks_;
  switch (options.collective) {
    case Collective::allreduce:
    case Collective::broadcast: input_elements_ = output_elements_ = elements; break;
    case Collective::allgather: input_elements_ = block, output_elements_ = block * ranks_; break;
    case Collective::reducescatter: input_elements_ = block * ranks_, output_elements_ = block; break;
    case Collective::alltoall: input_elements_ = output_elements_ = block * ranks_; break;
    default: throw InvalidArgument(std::string("no benchmark of ") + collective_name(options.collective));
  }
  if (input_elements_ == 0) throw InvalidArgument("too few bytes for so many ranks and tensors");
  if (options.collective == Collective::alltoall) {
    if (options.tensors != 1) throw InvalidArgument("alltoall takes one tensor");
    call_.counts.assign(static_cast<std::size_t>(ranks_), std::vector(static_cast<std::size_t>(ranks_), block));
  }
  for (int tensor = 0; tensor < options.tensors; ++tensor) add_tensor();
}

Workload::Buffer Workload::allocate(std::int64_t elements) const {
  const std::size_t bytes = static_cast<std::size_t>(elements) * sizeof(float);
  if (options_.arena != nullptr) return Buffer(static_cast<float*>(options_.arena->allocate(bytes)), {options_.arena});
  void* memory = std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  if (memory == nullptr) throw InvalidArgument("there is not so much memory");
  return Buffer(static_cast<float*>(memory), {nullptr});
}

void Workload::add_tensor() {
  const bool one_buffer = options_.in_place || options_.collective == Collective::broadcast;
  const Tensor& tensor = tensors_.emplace_back(
      Tensor{.input = allocate(input_elements_),
             .separate_output = one_buffer ? Buffer(nullptr, {nullptr}) : allocate(output_elements_)});
  call_.pieces.push_back({.input = tensor.input.get(), .output = tensor.output(), .elements = input_elements_});
  const auto ranks = static_cast<std::size_t>(ranks_);
  if (options_.collective == Collective::allgather) call_.counts.emplace_back(ranks, input_elements_);
  if (options_.collective == Collective::reducescatter) call_.counts.emplace_back(ranks, output_elements_);
}

int Workload::exact_calls() const {
  if (!options_.in_place || ranks_ == 1) return kManyCalls;
  // Each call multiplies by the number of ranks: by a power of two only the exponent grows, else the digits do.
  if (std::has_single_bit(static_cast<unsigned>(ranks_))) return static_cast<int>(100 / std::log2(ranks_));
  return 1 + static_cast<int>(std::log(float{1 << 24} / static_cast<float>(kPeriod * ranks_)) / std::log(ranks_));
}

void Workload::rewrite(int round) {
  const Pattern pattern = contribution(rank_, round);
  std::int64_t first = 0;
  const bool gives = options_.collective != Collective::broadcast || rank_ == call_.root;
  for (const Tensor& tensor : tensors_) {
    std::fill_n(tensor.output(), output_elements_, -1.0f);
    if (gives) pattern.write(tensor.input.get(), first, input_elements_);
    first += input_elements_;
  }
}

void Workload::check(int round, int calls) const {
  std::vector<Pattern> expected;  // of allgather and alltoall by rank, else one
  switch (options_.collective) {
    case Collective::broadcast: expected = {contribution(call_.root, round)}; break;
    case Collective::allgather:
    case Collective::alltoall:
      for (int rank = 0; rank < ranks_; ++rank) expected.push_back(contribution(rank, round));
      break;
    default:
      expected = {sum(ranks_, round)};
      if (options_.in_place) expected[0].multiply(std::pow(static_cast<float>(ranks_), static_cast<float>(calls - 1)));
  }
  std::int64_t first = 0;  // of the tensor's input
  for (std::size_t t = 0; t < tensors_.size(); ++t, first += input_elements_) {
    const float* output = tensors_[t].output();
    const std::int64_t block = output_elements_ / static_cast<std::int64_t>(expected.size());
    for (const Pattern& pattern : expected) {
      std::int64_t from = first;
      if (options_.collective == Collective::alltoall) from += rank_ * block;
      if (options_.collective == Collective::reducescatter) from += rank_ * output_elements_;
      require(pattern.matches(output, from, block), collective_name(options_.collective), t);
      output += block;
    }
  }
}

}  // namespace hvd::bench
