// One direction of a connection: messages that are expected to come in. Used by TcpTransport, on its thread.
//
// The lengths of the posted receives say where each coming byte belongs, so several messages are read with one system
// call, headers and payloads straight to their places. Each header is compared with the posted receive as soon as it
// is complete; a peer that sends something else can put wrong bytes into posted memory, but not outside it.
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
  // The message that is expected next; the queue is not empty.
  const Operation& front() const { return *queue_.front().operation; }

  void push(Operation& operation) { queue_.push_back({.header = {}, .operation = &operation}); }

  // Takes what has come without blocking, with one call, and marks as done what is complete. The queue is not empty.
  // False: the peer has closed or reset the connection. Throws Internal on a header that does not fit.
  bool advance(const Socket& socket, const std::string& peer_name);

  void clear() { queue_.clear(); }

  // Bytes so far.
  std::uint64_t moved() const { return moved_; }

 private:
  struct Incoming {
    DataFrameHeader header;
    Operation* operation;
    std::size_t size() const { return sizeof header + operation->size(); }
  };

  void consume(std::size_t bytes, const std::string& peer_name);

  std::deque<Incoming> queue_;
  std::uint64_t moved_ = 0;
  std::size_t front_received_ = 0;  // bytes of the front message, header included, that have come
};

}  // namespace hvd
