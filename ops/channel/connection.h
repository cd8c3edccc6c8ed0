// A connection for messages, at either end: what is to go out, and what has come in. The channel's thread.
#pragma once

#include <array>
#include <cstddef>
#include <deque>
#include <optional>
#include <span>
#include <vector>

#include "core/net/socket.h"
#include "ops/channel/frame.h"
#include "ops/channel/transfer.h"

namespace hvd {

class Connection {
 public:
  // Reads at most `buffer_bytes` ahead.
  Connection(Socket socket, std::size_t buffer_bytes) : socket_(std::move(socket)), buffer_(buffer_bytes) {}

  int fd() const { return socket_.fd(); }

  // Queues a frame; with the payload of a send that is done when it has left.
  void push(const MessageFrame& frame);
  void push(const MessageFrame& frame, Transfer send);
  bool has_output() const { return !output_.empty(); }
  // Gives the kernel what it takes. False: the connection is gone.
  bool flush();
  // Nothing more will be sent.
  void finish_output();
  // The sends that have not left, as their memory is not to be read any more.
  std::vector<Transfer> give_up_output();

  // What has come and was not consumed yet.
  std::span<const std::byte> input() const { return std::span(buffer_).subspan(begin_, end_ - begin_); }
  void consume(std::size_t bytes) { begin_ += bytes; }
  // Reads into the buffer, or, which must be empty then, past it. Empty: the connection is gone; 0: nothing has come.
  std::optional<std::size_t> fill();
  std::optional<std::size_t> read_into(std::span<std::byte> memory) { return socket_.receive_some(memory); }

 private:
  struct Outgoing {
    std::array<std::byte, kMessageFrameBytes> header;
    std::span<const std::byte> payload;
    std::optional<Transfer> send;
    std::size_t size() const { return header.size() + payload.size(); }
  };

  Socket socket_;
  std::deque<Outgoing> output_;
  std::size_t front_sent_ = 0;  // bytes of the first one that have left
  std::vector<std::byte> buffer_;
  std::size_t begin_ = 0, end_ = 0;  // of the input in buffer_
};

}  // namespace hvd
