// Copying into memory that other CPUs have just read, the faster of two ways.
//
// A plain store must first take the line away from the CPU that read it last. Where CPUs are far from each other (on
// other dies, or a virtual machine's idea of neighbours) that is most of an allreduce's time, and a streaming store,
// which sends whole lines to memory without asking for them first, is up to fifteen times as fast. Where they are near
// it is as often slower. Virtual machines change from one to the other within seconds, so this is measured all along:
// the way that was not chosen is tried on one chunk in kTrial. Each rank chooses for itself; results are the same
// bytes.
//
// Engine thread.
#pragma once

#include <array>
#include <cstddef>

#include "core/base/clock.h"

namespace hvd {

class PublishingCopy {
 public:
  // A chunk of so many bytes begins, in one or more calls of copy(); close() before it is published.
  void open(std::size_t bytes);
  void copy(std::byte* destination, const std::byte* source, std::size_t bytes);
  void close();

  // A chunk that is one part.
  void copy_chunk(std::byte* destination, const std::byte* source, std::size_t bytes) {
    open(bytes);
    copy(destination, source, bytes);
    close();
  }

 private:
  enum class Way { plain, streaming };

  Way better() const;

  static constexpr unsigned kTrial = 64;
  static constexpr std::size_t kMeasuredBytes = 16 << 10;  // smaller chunks are copied plainly
  static constexpr std::size_t kStreamedBytes = 1 << 10;   // smaller parts of them too

  Way way_ = Way::plain;
  std::size_t bytes_ = 0;  // of the chunk, if it is measured
  TimePoint started_;
  unsigned chunks_ = 0;
  std::array<double, 2> cost_{};  // seconds per byte, smoothed; 0: not known yet
};

}  // namespace hvd
