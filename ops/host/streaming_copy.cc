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

void PublishingCopy::open(std::size_t bytes) {
  way_ = CopyTrials::Way::plain;
  bytes_ = kCanStream && bytes >= kMeasuredBytes ? bytes : 0;
  if (bytes_ == 0) return;
  way_ = trials_.choose();
  started_ = Clock::now();
}

void PublishingCopy::copy(std::byte* destination, const std::byte* source, std::size_t bytes) {
  if (way_ == CopyTrials::Way::streaming && bytes >= kStreamedBytes) {
    stream(destination, source, bytes);
  } else {
    std::memcpy(destination, source, bytes);
  }
}

void PublishingCopy::close() {
  if (way_ == CopyTrials::Way::streaming) finish_streaming();
  if (bytes_ > 0) trials_.took(way_, seconds(Clock::now() - started_) / static_cast<double>(bytes_));
}

}  // namespace hvd
