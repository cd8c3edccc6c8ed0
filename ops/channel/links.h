// The two ends of the messages from one rank to another. Used on the channel's thread.
//
// A message is sent eagerly up to the credit, otherwise offered, whatever its size. A receiver thus keeps at most the
// credit for messages without a receive, and a message without a receive blocks no other one.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "ops/channel/connection.h"
#include "ops/channel/matcher.h"
#include "ops/host/peer_memory.h"

namespace hvd {

// Sends this rank's messages to one other rank.
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

// Receives the messages of one other rank. Eager messages are delivered, or kept for a later receive; offered ones are
// read directly from the sender's memory if that is possible, otherwise fetched.
class IncomingLink {
 public:
  // The sending rank; `same_host`: its memory may be readable.
  struct Sender {
    int rank;
    std::string description;
    bool same_host;
  };

  // The matcher outlives the link.
  IncomingLink(Sender sender, Socket socket, Matcher& matcher);

  int fd() const { return connection_.fd(); }
  bool has_output() const { return connection_.has_output(); }

  // Returns false if the connection is closed.
  bool flush() { return connection_.flush(); }
  // Processes input, up to a limit. Returns false if the connection is closed. Throws Internal.
  bool advance();

  // Completes a receive for which the matcher had a message from this link.
  void deliver(Transfer receive, const Arrival& arrival);

  // Returns the receives whose messages have arrived in part or not at all.
  std::vector<Transfer> give_up();
  bool is_fetching() const { return !fetching_.empty(); }

 private:
  bool hear_input();
  void greet(const MessageFrame& hello);
  void take_message(const MessageFrame& frame, std::span<const std::byte> payload);
  void take_offer(const MessageFrame& frame);
  void accept(Transfer receive, const MessageFrame& offer);
  bool read_directly(Transfer& receive, const MessageFrame& offer);
  void begin_data(const MessageFrame& frame);
  void take_data(std::size_t bytes);
  void give_back(std::uint64_t length);

  const Sender sender_;
  Connection connection_;
  Matcher& matcher_;
  PeerMemory memory_;
  bool greeted_ = false;
  bool memory_is_readable_ = false;
  std::uint64_t kept_ = 0;  // cost of the messages that the matcher keeps
  std::uint64_t owed_credit_ = 0;
  std::size_t open_offers_ = 0;                           // not answered by this rank
  std::map<std::uint64_t, Transfer> fetching_;            // by offer
  std::map<std::uint64_t, Transfer>::iterator arriving_;  // the one whose data is arriving; end(): none
  std::size_t arrived_ = 0;                               // bytes of it
};

// Completes a receive with a whole message.
void deliver(Transfer receive, std::span<const std::byte> content, int source, const std::string& who);

}  // namespace hvd
