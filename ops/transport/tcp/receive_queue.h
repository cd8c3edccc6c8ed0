// The queue of expected messages of one connection. Used by TcpTransport, on its thread.
//
// The lengths of the posted receives determine the destination of each byte, so several messages are read with one
// system call, headers and payloads directly into place. Each header is compared with the posted receive as soon as it
// is complete; a peer that sends something else can write wrong bytes into posted memory, but not outside it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>

#include "core/net/socket.h"
#include "ops/transport/operation.h"
#include "ops/transport/tcp/frame_header.h"

namespace hvd {

class ReceiveQueue {
 public:
  bool empty() const { return queue_.empty(); }
  // The next expected message; the queue must not be empty.
  const PostedMessage& front() const { return *queue_.front().operation; }

  void push(PostedMessage& operation) { queue_.push_back({.header = {}, .operation = &operation}); }

  // Reads what has arrived without blocking, with one call, and marks complete operations as done. The queue must not
  // be empty. Returns false if the peer has closed or reset the connection. Throws Internal on a wrong header.
  bool advance(const Socket& socket, const std::string& peer_name);

  void clear() { queue_.clear(); }

  // Bytes received so far.
  std::uint64_t moved() const { return moved_; }

 private:
  struct Incoming {
    DataFrameHeader header;
    PostedMessage* operation;
    std::size_t size() const { return sizeof header + operation->size(); }
  };

  void consume(std::size_t bytes, const std::string& peer_name);

  std::deque<Incoming> queue_;
  std::uint64_t moved_ = 0;
  std::size_t front_received_ = 0;  // received bytes of the front message, header included
};

}  // namespace hvd
