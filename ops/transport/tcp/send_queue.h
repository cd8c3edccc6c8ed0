// One direction of a connection: messages on their way out. Used by TcpTransport, on its thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>

#include "core/net/socket.h"
#include "ops/transport/operation.h"
#include "ops/transport/tcp/frame_header.h"

namespace hvd {

class SendQueue {
 public:
  bool empty() const { return queue_.empty(); }
  // The message that leaves next; the queue is not empty.
  const Operation& front() const { return *queue_.front().operation; }

  void push(Operation& operation, int this_rank);

  // Gives the kernel what it takes without blocking, several messages with one call, and marks as done those that left
  // entirely. The queue is not empty. False: the peer has closed or reset the connection.
  bool advance(Socket& socket);

  void clear() { queue_.clear(); }

  // Bytes so far.
  std::uint64_t moved() const { return moved_; }

 private:
  struct Outgoing {
    DataFrameHeader header;
    Operation* operation;
    std::size_t size() const { return sizeof header + operation->size(); }
  };

  std::size_t gather(std::span<std::span<const std::byte>> buffers) const;
  void consume(std::size_t bytes);

  std::deque<Outgoing> queue_;
  std::uint64_t moved_ = 0;
  std::size_t front_sent_ = 0;  // bytes of the front message, header included, that have left
};

}  // namespace hvd
