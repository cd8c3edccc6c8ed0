#include "ops/host/publishing_copy.h"

#include <algorithm>
#include <cstring>

#include "ops/host/streaming_copy.h"

namespace hvd {

PublishingCopy::Way PublishingCopy::better() const {
  // Requires a factor of two: streamed data is more expensive to read.
  return cost_[1] > 0 && 2 * cost_[1] < cost_[0] ? Way::streaming : Way::plain;
}

void PublishingCopy::open(std::size_t bytes) {
  way_ = Way::plain;
  bytes_ = kCanStream && bytes >= kMeasuredBytes ? bytes : 0;
  if (bytes_ == 0) return;
  way_ = better();
  if (++chunks_ % kTrial == 0) way_ = way_ == Way::plain ? Way::streaming : Way::plain;
  started_ = Clock::now();
}

void PublishingCopy::copy(std::byte* destination, const std::byte* source, std::size_t bytes) {
  if (way_ == Way::streaming && bytes >= kStreamedBytes) {
    stream(destination, source, bytes);
  } else {
    std::memcpy(destination, source, bytes);
  }
}

void PublishingCopy::close() {
  if (way_ == Way::streaming) finish_streaming();
  if (bytes_ == 0) return;
  double& cost = cost_[static_cast<std::size_t>(way_)];
  const double latest = seconds(Clock::now() - started_) / static_cast<double>(bytes_);
  // An interrupted copy is not representative: a cost counts as twice the usual at most.
  cost = cost > 0 ? (cost + std::min(latest, 2 * cost)) / 2 : latest;
}

}  // namespace hvd
