#include "core/control/tree/mailbox.h"

#include <algorithm>
#include <cstring>

#include "core/base/error.h"

namespace hvd {

std::size_t ByteRing::write(std::span<const std::byte> bytes) {
  const std::uint64_t written = written_.load(std::memory_order_relaxed);
  // seq_cst on both sides: either the producer sees the room, or the consumer sees the request for it.
  const std::uint64_t used = written - read_.load(std::memory_order_seq_cst);
  if (used > kBytes) return 0;  // the consumer's side is corrupt; the failure detection will report it
  const std::size_t count = std::min(bytes.size(), kBytes - static_cast<std::size_t>(used));
  const std::size_t start = static_cast<std::size_t>(written % kBytes);
  const std::size_t first = std::min(count, kBytes - start);
  if (first > 0) std::memcpy(data_ + start, bytes.data(), first);
  if (count > first) std::memcpy(data_, bytes.data() + first, count - first);
  written_.store(written + count, std::memory_order_release);
  return count;
}

bool ByteRing::read_into(FrameReader& reader) {
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

}  // namespace hvd
