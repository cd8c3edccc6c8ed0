// This rank's messages to one other rank: sent at once as far as the credit goes, else offered until they are taken.
// The channel's thread.
//
// A message beyond the credit is offered whatever its size. So nobody has to keep more than the credit for messages
// that are not received yet, and a message that is not received holds up no other one.
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

  // Goes out when the link is open.
  void send(Transfer message) { waiting_.push_back(std::move(message)); }
  void open(Socket socket, const MessageFrame& hello);
  bool is_open() const { return connection_ != nullptr; }
  bool has_waiting() const { return !waiting_.empty(); }
  int fd() const { return connection_->fd(); }
  bool has_output() const { return connection_ && connection_->has_output(); }
  void finish_output() { connection_->finish_output(); }

  // Of an open link: what can go, goes. False: the connection is gone.
  bool flush();
  // Of an open link: hears what the receiver says. False: the connection is gone. Throws Internal.
  bool advance();

  void for_each_waiting(const std::function<void(Transfer&)>& visit);
  // What has not been sent; the connection stays.
  std::vector<Transfer> give_up_unsent();
  // Everything that is under way; the connection is closed.
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
