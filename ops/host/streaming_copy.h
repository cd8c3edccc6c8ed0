// Copies that bypass the caches, for memory that this CPU will not read soon.
//
// A plain store first fetches the line that it overwrites. A streaming store sends whole lines to memory without
// requesting them: half the traffic for data that does not fit into the caches, and no line is taken away from the CPU
// that read it last. For data that fits it is several times slower.
#pragma once

#include <cstddef>

#include "core/base/clock.h"
#include "ops/choice/host_choice.h"

namespace hvd {

// False if the instruction set has no such stores; stream() is a plain copy then.
extern const bool kCanStream;

// Any alignment. Call finish_streaming() before publishing the bytes: a release store does not order such stores.
void stream(std::byte* destination, const std::byte* source, std::size_t bytes);
void finish_streaming();

// Copies into memory that other CPUs have just read, by plain or by streaming stores (CopyTrials). Engine thread only.
class PublishingCopy {
 public:
  // Starts a chunk of that many bytes; followed by one or more calls of copy(), and close() before it is published.
  void open(std::size_t bytes);
  void copy(std::byte* destination, const std::byte* source, std::size_t bytes);
  void close();

  // Copies a chunk that has one part.
  void copy_chunk(std::byte* destination, const std::byte* source, std::size_t bytes) {
    open(bytes);
    copy(destination, source, bytes);
    close();
  }

 private:
  static constexpr std::size_t kMeasuredBytes = 16 << 10;  // smaller chunks use plain stores
  static constexpr std::size_t kStreamedBytes = 1 << 10;   // and so do smaller parts of a chunk

  CopyTrials trials_;
  CopyTrials::Way way_ = CopyTrials::Way::plain;
  std::size_t bytes_ = 0;  // of the chunk, if it is measured
  TimePoint started_;
};

}  // namespace hvd
