#include "ops/transport/tcp/send_queue.h"

#include <algorithm>
#include <array>

namespace hvd {

namespace {

constexpr std::size_t kMessagesPerSend = 16;

}  // namespace

void SendQueue::push(PostedMessage& operation, int this_rank) {
  const DataFrameHeader header{.sender = static_cast<std::uint32_t>(this_rank),
                               .process_set = operation.tag.process_set,
                               .step = operation.tag.step,
                               .sequence = operation.tag.sequence,
                               .length = operation.size()};
  queue_.push_back({.header = header, .operation = &operation});
}

bool SendQueue::advance(Socket& socket) {
  std::array<std::span<const std::byte>, 2 * kMessagesPerSend> buffers;
  const std::size_t count = gather(buffers);
  const auto sent = socket.send_some(std::span<const std::span<const std::byte>>(buffers).first(count));
  if (sent) consume(*sent);
  return sent.has_value();
}

std::size_t SendQueue::gather(std::span<std::span<const std::byte>> buffers) const {
  std::size_t count = 0;
  std::size_t skip = front_sent_;
  const auto append = [&](std::span<const std::byte> bytes) {
    const std::size_t skipped = std::min(skip, bytes.size());
    skip -= skipped;
    if (skipped < bytes.size()) buffers[count++] = bytes.subspan(skipped);
  };
  for (const Outgoing& message : queue_) {
    if (count + 2 > buffers.size()) break;
    append(std::as_bytes(std::span(&message.header, 1)));
    append(message.operation->outgoing);
  }
  return count;
}

void SendQueue::consume(std::size_t bytes) {
  moved_ += bytes;
  front_sent_ += bytes;
  while (!queue_.empty() && front_sent_ >= queue_.front().size()) {
    front_sent_ -= queue_.front().size();
    queue_.front().operation->done = true;
    queue_.pop_front();
  }
}

}  // namespace hvd
