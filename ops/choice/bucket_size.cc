#include "ops/choice/bucket_size.h"

namespace hvd {

namespace {

constexpr std::int64_t kMinBucketBytes = std::int64_t{1} << 20;
constexpr double kGain = 1.05;  // a smaller gain is not worth waiting for

}  // namespace

std::int64_t bucket_bytes(AllreduceChoice& choice, int ranks) {
  const auto seconds_per_byte = [&](std::int64_t bytes) {
    return choice.predicted_seconds({.bytes = static_cast<std::size_t>(bytes), .ranks = ranks}) /
           static_cast<double>(bytes);
  };
  const double least = seconds_per_byte(kMaxBucketBytes);
  std::int64_t bytes = kMinBucketBytes;
  while (bytes < kMaxBucketBytes && seconds_per_byte(bytes) > kGain * least) bytes *= 2;
  return bytes;
}

}  // namespace hvd
