// The two ends of the messages from one rank to another. Used on the channel's thread.
//
// A short message is sent eagerly while there is credit; every other message is offered. A receiver therefore stores
// unmatched messages up to the credit only, and an unmatched message blocks no other one.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "ops/channel/connection.h"
#include "ops/channel/matcher.h"
#include "ops/host/peer_memory.h"

namespace hvd {

inline Status wrong_size(std::uint64_t sent, const Transfer& receive, const std::string& who) {
  return {StatusCode::mismatch, "a message of " + std::to_string(sent) + " bytes of tag " +
                                    std::to_string(receive.message.tag) + " from " + who + " was received into " +
                                    std::to_string(receive.message.memory.size()) +
                                    " bytes: both sides must have the same size"};
}

// Completes a receive with a whole message.
inline void deliver(Transfer receive, std::span<const std::byte> content, int source, const std::string& who) {
  if (content.size() != receive.message.memory.size()) {
    return complete(receive, wrong_size(content.size(), receive, who), source);
  }
  if (!content.empty()) std::memcpy(receive.message.memory.data(), content.data(), content.size());
  complete(receive, Status(), source);
}

// Sends this rank's messages to one other rank.
class OutgoingLink {
 public:
  explicit OutgoingLink(std::string peer) : peer_(std::move(peer)) {}

  // Queues a message; it is sent when the link is open.
  void send(Transfer message) { waiting_.push_back(std::move(message)); }

  void open(Socket socket, const MessageFrame& hello) {
    connection_ = std::make_unique<Connection>(std::move(socket), kAnswerBytes);
    connection_->push(hello);
  }

  bool is_open() const { return connection_ != nullptr; }
  bool has_waiting() const { return !waiting_.empty(); }
  int fd() const { return connection_->fd(); }
  bool has_output() const { return connection_ && connection_->has_output(); }
  void finish_output() { connection_->finish_output(); }

  // For an open link: sends what it can. Returns false if the connection is closed.
  bool flush() {
    while (!waiting_.empty() && offers_.size() < kMaxOffers) {
      Transfer next = std::move(waiting_.front());
      waiting_.pop_front();
      transmit(std::move(next));
    }
    return connection_->flush();
  }

  // For an open link: processes the receiver's frames. Returns false if the connection is closed. Throws Internal.
  bool advance() {
    for (;;) {
      const auto count = connection_->fill();
      if (!count) return false;
      while (connection_->input().size() >= kMessageFrameBytes) {
        const MessageFrame frame =
            parse_message_frame(connection_->input().first<kMessageFrameBytes>(), Direction::to_sender);
        connection_->consume(kMessageFrameBytes);
        handle_frame(frame);
      }
      if (*count == 0) return true;
    }
  }

  void for_each_waiting(const std::function<void(Transfer&)>& visit) {
    for (Transfer& message : waiting_) visit(message);
    for (auto& [id, message] : offers_) visit(message);
  }

  // Returns the unsent messages; the connection stays open.
  std::vector<Transfer> take_unsent() {
    std::vector<Transfer> unsent;
    for (auto& [id, message] : std::exchange(offers_, {})) unsent.push_back(std::move(message));
    for (Transfer& message : std::exchange(waiting_, {})) unsent.push_back(std::move(message));
    return unsent;
  }

  // Closes the connection and returns all pending messages.
  std::vector<Transfer> take_pending() {
    std::vector<Transfer> all = take_unsent();
    if (!connection_) return all;
    for (Transfer& message : connection_->take_pending_output()) all.push_back(std::move(message));
    connection_.reset();
    return all;
  }

 private:
  using Kind = MessageFrame::Kind;

  // Size of the input buffer: this many answers are read with one call.
  static constexpr std::size_t kAnswerBytes = 64 * kMessageFrameBytes;

  void transmit(Transfer message) {
    const Message& what = message.message;
    MessageFrame frame{.kind = Kind::message, .channel = what.channel, .tag = what.tag, .length = what.memory.size()};
    const std::uint64_t cost = cost_of(frame.length);
    if (frame.length <= kEagerBytes && cost <= credit_) {
      credit_ -= cost;
      return connection_->push(frame, std::move(message));
    }
    frame.kind = Kind::offer;
    frame.id = next_offer_++;
    frame.address = std::bit_cast<std::uintptr_t>(what.memory.data());
    connection_->push(frame);
    offers_.emplace(frame.id, std::move(message));
  }

  void handle_frame(const MessageFrame& frame) {
    if (frame.kind == Kind::credit) {
      credit_ += frame.length;
      if (credit_ > kMessageCredit) throw Internal(peer_ + " gives back more credit for messages than it was sent");
      return;
    }
    Transfer offered = take_offer(frame.id);
    const std::uint64_t length = offered.message.memory.size();
    if (frame.kind == Kind::fetch) {
      connection_->push({.kind = Kind::data, .id = frame.id, .length = length}, std::move(offered));
    } else if (frame.kind == Kind::taken) {
      complete(offered, Status());
    } else {
      complete(offered, Status(StatusCode::mismatch, "a message of " + std::to_string(length) + " bytes of tag " +
                                                         std::to_string(offered.message.tag) + " was sent to " + peer_ +
                                                         ", which receives it into " + std::to_string(frame.length) +
                                                         " bytes: both sides must have the same size"));
    }
  }

  Transfer take_offer(std::uint64_t id) {
    const auto found = offers_.find(id);
    if (found == offers_.end()) throw Internal(peer_ + " answers a message that it was not offered");
    Transfer offered = std::move(found->second);
    offers_.erase(found);
    return offered;
  }

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
  IncomingLink(Sender sender, Socket socket, Matcher& matcher)
      : sender_(std::move(sender)),
        connection_(std::move(socket), kInputBytes),
        matcher_(matcher),
        arriving_(fetching_.end()) {}

  int fd() const { return connection_.fd(); }
  bool has_output() const { return connection_.has_output(); }

  // Returns false if the connection is closed.
  bool flush() { return connection_.flush(); }

  // Processes input, up to a limit. Returns false if the connection is closed. Throws Internal.
  bool advance() {
    for (int i = 0; i < kReads; ++i) {
      const bool into_place = arriving_ != fetching_.end();
      const auto count =
          into_place ? connection_.read_into(arriving_->second.message.memory.subspan(arrived_)) : connection_.fill();
      if (!count) return false;
      if (*count == 0) return true;
      if (into_place) take_data(*count);
      // Processes the whole buffer: no later event reports its rest.
      while (handle_input()) {
      }
    }
    return true;
  }

  // Completes a receive for which the matcher had a message from this link.
  void deliver(Transfer receive, const Arrival& arrival) {
    if (arrival.offer) {
      return accept(std::move(receive),
                    {.kind = Kind::offer, .id = *arrival.offer, .length = arrival.length, .address = arrival.address});
    }
    kept_ -= cost_of(arrival.length);
    hvd::deliver(std::move(receive), arrival.content, sender_.rank, sender_.description);
    give_back(arrival.length);
  }

  // Returns the receives whose messages have arrived in part or not at all.
  std::vector<Transfer> take_pending() {
    std::vector<Transfer> all;
    for (auto& [id, receive] : std::exchange(fetching_, {})) all.push_back(std::move(receive));
    arriving_ = fetching_.end();
    return all;
  }

  bool is_fetching() const { return !fetching_.empty(); }

 private:
  using Kind = MessageFrame::Kind;

  // Room for the largest eager message.
  static constexpr std::size_t kInputBytes = 2 * (kMessageFrameBytes + kEagerBytes);
  // Credit is returned once this much of it is owed: the sender still has the other three quarters.
  static constexpr std::uint64_t kCreditPortion = kMessageCredit / 4;
  // Limit of consecutive reads, so that other ranks get their turn.
  static constexpr int kReads = 32;

  // Processes the next complete frame; returns false if there is none.
  bool handle_input() {
    const auto input = connection_.input();
    if (arriving_ != fetching_.end()) {
      if (input.empty()) return false;
      const auto rest = arriving_->second.message.memory.subspan(arrived_);
      const std::size_t count = std::min(rest.size(), input.size());
      std::memcpy(rest.data(), input.data(), count);
      connection_.consume(count);
      take_data(count);
      return true;
    }
    if (input.size() < kMessageFrameBytes) return false;
    const MessageFrame frame = parse_message_frame(input.first<kMessageFrameBytes>(), Direction::to_receiver);
    if (greeted_ == (frame.kind == Kind::hello))
      throw Internal("malformed message: a greeting must come first, and once");
    const std::size_t whole = kMessageFrameBytes + (frame.kind == Kind::message ? frame.length : 0);
    if (input.size() < whole) return false;
    connection_.consume(whole);
    switch (frame.kind) {
      case Kind::hello: greet(frame); break;
      case Kind::message: take_message(frame, input.subspan(kMessageFrameBytes, frame.length)); break;
      case Kind::offer: take_offer(frame); break;
      default: begin_data(frame);
    }
    return true;
  }

  void greet(const MessageFrame& hello) {
    greeted_ = true;
    const std::array probe{PeerMemory::AccessProbe{
        .process = static_cast<pid_t>(hello.id), .address = hello.address, .word = hello.length}};
    memory_is_readable_ = sender_.same_host && memory_.probe_access(probe);
  }

  void take_message(const MessageFrame& frame, std::span<const std::byte> payload) {
    if (auto receive = matcher_.take_receive(sender_.rank, frame.channel, frame.tag)) {
      hvd::deliver(std::move(*receive), payload, sender_.rank, sender_.description);
      return give_back(frame.length);
    }
    kept_ += cost_of(frame.length);
    if (kept_ > kMessageCredit) throw Internal("malformed message: more of them than this rank has taken");
    matcher_.keep({.source = sender_.rank,
                   .channel = frame.channel,
                   .tag = frame.tag,
                   .length = frame.length,
                   .content = {payload.begin(), payload.end()}});
  }

  void take_offer(const MessageFrame& frame) {
    if (!open_offers_.insert(frame.id).second) throw Internal("malformed message: two offers of one number");
    if (open_offers_.size() > kMaxOffers) throw Internal("malformed message: more offers than a rank may make");
    if (auto receive = matcher_.take_receive(sender_.rank, frame.channel, frame.tag)) {
      return accept(std::move(*receive), frame);
    }
    matcher_.keep({.source = sender_.rank,
                   .channel = frame.channel,
                   .tag = frame.tag,
                   .length = frame.length,
                   .offer = frame.id,
                   .address = frame.address,
                   .content = {}});
  }

  void accept(Transfer receive, const MessageFrame& offer) {
    const std::uint64_t room = receive.message.memory.size();
    if (offer.length != room) {
      open_offers_.erase(offer.id);
      connection_.push({.kind = Kind::refused, .id = offer.id, .length = room});
      complete(receive, wrong_size(offer.length, receive, sender_.description), sender_.rank);
    } else if (room == 0 || read_directly(receive, offer)) {
      open_offers_.erase(offer.id);
      connection_.push({.kind = Kind::taken, .id = offer.id});
      complete(receive, Status(), sender_.rank);
    } else {
      connection_.push({.kind = Kind::fetch, .id = offer.id});
      fetching_.emplace(offer.id, std::move(receive));
    }
  }

  bool read_directly(Transfer& receive, const MessageFrame& offer) {
    if (!memory_is_readable_) return false;
    const auto room = receive.message.memory;
    try {
      memory_.read(0, offer.address, room.data(), room.size(), [this](int) { return sender_.description; });
    } catch (const Error&) {  // not all kinds of memory are readable; a lost rank is detected on the connection
      return false;
    }
    return true;
  }

  void begin_data(const MessageFrame& frame) {
    const auto found = fetching_.find(frame.id);
    if (found == fetching_.end() || frame.length != found->second.message.memory.size()) {
      throw Internal("malformed message: data that nobody has asked for");
    }
    arriving_ = found;
    arrived_ = 0;
  }

  void take_data(std::size_t bytes) {
    arrived_ += bytes;
    if (arrived_ < arriving_->second.message.memory.size()) return;
    complete(arriving_->second, Status(), sender_.rank);
    open_offers_.erase(arriving_->first);
    fetching_.erase(arriving_);
    arriving_ = fetching_.end();
  }

  void give_back(std::uint64_t length) {
    owed_credit_ += cost_of(length);
    if (owed_credit_ < kCreditPortion) return;
    connection_.push({.kind = Kind::credit, .length = std::exchange(owed_credit_, 0)});
  }

  const Sender sender_;
  Connection connection_;
  Matcher& matcher_;
  PeerMemory memory_;
  bool greeted_ = false;
  bool memory_is_readable_ = false;
  std::uint64_t kept_ = 0;  // cost of the messages that the matcher keeps
  std::uint64_t owed_credit_ = 0;
  std::set<std::uint64_t> open_offers_;                   // ids of those kept by the matcher or being fetched
  std::map<std::uint64_t, Transfer> fetching_;            // by id of the offer
  std::map<std::uint64_t, Transfer>::iterator arriving_;  // the one whose data is arriving; end(): none
  std::size_t arrived_ = 0;                               // bytes of it
};

}  // namespace hvd
