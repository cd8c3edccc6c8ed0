// The queue of outgoing messages of one connection. Used by TcpTransport, on its thread.
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
  // The next message to be sent; the queue must not be empty.
  const PostedMessage& front() const { return *queue_.front().operation; }

  void push(PostedMessage& operation, int this_rank);

  // Passes to the kernel what it accepts without blocking, several messages with one call, and marks completely sent
  // messages as done. The queue must not be empty. Returns false if the peer has closed or reset the connection.
  bool advance(Socket& socket);

  void clear() { queue_.clear(); }

  // Bytes sent so far.
  std::uint64_t moved() const { return moved_; }

 private:
  struct Outgoing {
    DataFrameHeader header;
    PostedMessage* operation;
    std::size_t size() const { return sizeof header + operation->size(); }
  };

  std::size_t gather(std::span<std::span<const std::byte>> buffers) const;
  void consume(std::size_t bytes);

  std::deque<Outgoing> queue_;
  std::uint64_t moved_ = 0;
  std::size_t front_sent_ = 0;  // sent bytes of the front message, header included
};

}  // namespace hvd
