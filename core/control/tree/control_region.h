// The shared memory of a host through which its ranks exchange control messages: ByteRing, a one-way byte stream, and a
// doorbell for each rank, which wakes it.
//
// ByteRing is a single-producer single-consumer ring in zero-initialised memory. It carries frames (core/net/frame.h);
// a message larger than the ring passes through it in parts. The reader checks the producer's position: a corrupt peer
// can end the stream, but not corrupt the reader.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "core/base/error.h"
#include "core/base/futex.h"
#include "core/net/frame.h"

namespace hvd {

struct ByteRing {
  static constexpr std::size_t kBytes = 64 * 1024;

  // Copies in as much as fits; returns how much. Producer only. Throws Internal if the consumer's position is invalid.
  std::size_t write(std::span<const std::byte> bytes) {
    const std::uint64_t written = written_.load(std::memory_order_relaxed);
    // seq_cst on both sides: either the producer sees the room, or the consumer sees the request for it.
    const std::uint64_t used = written - read_.load(std::memory_order_seq_cst);
    if (used > kBytes) throw Internal("a control mailbox was overwritten by its reader");
    const std::size_t count = std::min(bytes.size(), kBytes - static_cast<std::size_t>(used));
    const std::size_t start = static_cast<std::size_t>(written % kBytes);
    const std::size_t first = std::min(count, kBytes - start);
    if (first > 0) std::memcpy(data_ + start, bytes.data(), first);
    if (count > first) std::memcpy(data_, bytes.data() + first, count - first);
    written_.store(written + count, std::memory_order_release);
    return count;
  }

  // Moves everything that has arrived to the reader. Consumer only. True if there was anything. Throws Internal if the
  // producer's position is invalid.
  bool read_into(FrameReader& reader) {
    const std::uint64_t position = read_.load(std::memory_order_relaxed);
    const std::uint64_t available = written_.load(std::memory_order_acquire) - position;
    if (available == 0) return false;
    if (available > kBytes) throw Internal("a control mailbox was overwritten by its writer");
    const std::size_t count = static_cast<std::size_t>(available);
    const std::size_t start = static_cast<std::size_t>(position % kBytes);
    const std::size_t first = std::min(count, kBytes - start);
    reader.feed(std::span(data_ + start, first));
    if (count > first) reader.feed(std::span(data_, count - first));
    read_.store(position + count, std::memory_order_seq_cst);
    return true;
  }

  // Producer: requests a wakeup once there is room. Consumer: tests and clears that request after reading.
  void request_wakeup() { wants_room_.store(1, std::memory_order_seq_cst); }
  bool take_wakeup_request() {
    return wants_room_.load(std::memory_order_seq_cst) != 0 && wants_room_.exchange(0) != 0;
  }

 private:
  alignas(128) std::atomic<std::uint64_t> written_;  // bytes since the start; written by the producer
  alignas(128) std::atomic<std::uint64_t> read_;     // the same; written by the consumer
  alignas(128) std::atomic<std::uint32_t> wants_room_;
  alignas(128) std::byte data_[kBytes];
};

// The control region of a host: for each local rank a doorbell and a ring in each direction to and from the host's
// leader, which is local rank 0. All zero bytes initially.
struct ControlRegion {
  struct PerRank {
    Signal doorbell;
    alignas(128) std::atomic<std::uint64_t> break_requested;  // which lock is to end; only the first rank's is used
    ByteRing to_leader;
    ByteRing from_leader;
  };
  static std::size_t bytes_for(int local_size) { return static_cast<std::size_t>(local_size) * sizeof(PerRank); }
  PerRank& at(int local_rank) const { return ranks[local_rank]; }

  PerRank* ranks = nullptr;
};

}  // namespace hvd
