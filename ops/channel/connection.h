// A connection for messages, at either end: queued output and unread input. Used on the channel's thread.
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
  // Reads ahead at most `buffer_bytes`.
  Connection(Socket socket, std::size_t buffer_bytes) : socket_(std::move(socket)), buffer_(buffer_bytes) {}

  int fd() const { return socket_.fd(); }

  // Queues a frame, or a frame with the payload of a send, which is done once it is sent.
  void push(const MessageFrame& frame);
  void push(const MessageFrame& frame, Transfer send);
  bool has_output() const { return !output_.empty(); }
  // Passes output to the kernel. Returns false if the connection is closed.
  bool flush();
  // Closes the sending direction.
  void finish_output();
  // Returns the unsent sends, whose memory must not be read any more.
  std::vector<Transfer> give_up_output();

  // Input that was received and not consumed yet.
  std::span<const std::byte> input() const { return std::span(buffer_).subspan(begin_, end_ - begin_); }
  void consume(std::size_t bytes) { begin_ += bytes; }
  // Reads into the buffer, or, if it is empty, past it. Returns empty if it is closed, 0 if nothing arrived.
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
  std::size_t front_sent_ = 0;  // sent bytes of the first entry
  std::vector<std::byte> buffer_;
  std::size_t begin_ = 0, end_ = 0;  // unread input in buffer_
};

}  // namespace hvd
