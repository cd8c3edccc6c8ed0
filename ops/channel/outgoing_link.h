// Sends this rank's messages to one other rank: eagerly up to the credit, otherwise as offers that the receiver
// answers. Used on the channel's thread.
//
// A message beyond the credit is offered whatever its size. A receiver thus keeps at most the credit for messages
// without a receive, and a message without a receive blocks no other one.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ops/channel/connection.h"

namespace hvd {

class OutgoingLink {
 public:
  explicit OutgoingLink(std::string peer) : peer_(std::move(peer)) {}

  // Queues a message; it is sent when the link is open.
  void send(Transfer message) { waiting_.push_back(std::move(message)); }
  void open(Socket socket, const MessageFrame& hello);
  bool is_open() const { return connection_ != nullptr; }
  bool has_waiting() const { return !waiting_.empty(); }
  int fd() const { return connection_->fd(); }
  bool has_output() const { return connection_ && connection_->has_output(); }
  void finish_output() { connection_->finish_output(); }

  // For an open link: sends what it can. Returns false if the connection is closed.
  bool flush();
  // For an open link: processes the receiver's frames. Returns false if the connection is closed. Throws Internal.
  bool advance();

  void for_each_waiting(const std::function<void(Transfer&)>& visit);
  // Returns the unsent messages; the connection stays open.
  std::vector<Transfer> give_up_unsent();
  // Closes the connection and returns all pending messages.
  std::vector<Transfer> give_up();

 private:
  void transmit(Transfer message);
  void hear(const MessageFrame& frame);
  Transfer take_offer(std::uint64_t id);

  const std::string peer_;
  std::unique_ptr<Connection> connection_;
  std::deque<Transfer> waiting_;
  std::uint64_t credit_ = kMessageCredit;
  std::uint64_t next_offer_ = 0;
  std::map<std::uint64_t, Transfer> offers_;  // not answered yet
};

}  // namespace hvd
