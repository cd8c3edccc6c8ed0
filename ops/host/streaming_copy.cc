#include "ops/host/streaming_copy.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace hvd {

#if defined(__x86_64__)
const bool kCanStream = true;

void stream(std::byte* destination, const std::byte* source, std::size_t bytes) {
  constexpr std::size_t kLine = 64;
  const std::size_t head = std::min(bytes, (kLine - reinterpret_cast<std::uintptr_t>(destination) % kLine) % kLine);
  std::memcpy(destination, source, head);
  std::size_t at = head;
  for (; at + kLine <= bytes; at += kLine) {
    for (std::size_t i = at; i < at + kLine; i += sizeof(__m128i)) {
      const __m128i value = _mm_loadu_si128(reinterpret_cast<const __m128i*>(source + i));
      _mm_stream_si128(reinterpret_cast<__m128i*>(destination + i), value);
    }
  }
  std::memcpy(destination + at, source + at, bytes - at);
}

void finish_streaming() { _mm_sfence(); }
#else
const bool kCanStream = false;
void stream(std::byte* destination, const std::byte* source, std::size_t bytes) {
  std::memcpy(destination, source, bytes);
}
void finish_streaming() {}
#endif

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
