// Another rank with which this rank exchanges messages: the links in both directions, the attempts to connect to it,
// and the suspicion that it is lost. Used on the channel's thread.
//
// A rank that is ready for messages reports this in the store: the counter "channel/<rank>" is 1 when its addresses are
// there. A rank that wants to send to it polls that counter. A broken link alone is not reported: the job's control
// plane also detects a lost rank, and knows the cause (end()); only without such a report the messages of that rank
// fail with the link's error.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/log.h"
#include "core/bootstrap/store.h"
#include "core/bootstrap/topology.h"
#include "core/config.h"
#include "core/net/authentication.h"
#include "ops/channel/connection.h"
#include "ops/channel/links.h"
#include "ops/channel/matcher.h"

namespace hvd {

// The references outlive the channel.
struct ChannelParts {
  const Topology& topology;
  Store& store;
  const JobKey& job_key;
  const Config& config;
  const Log& log;
  std::string local_host;

  // The address kind for a rank. Ranks of the same host use a Unix socket, if they may share anything.
  Address::Kind address_kind(int rank) const;
  // The keys of a rank in the store.
  static std::string ready_key(int rank) { return "channel/" + std::to_string(rank); }
  static std::string address_key(int rank, Address::Kind kind) {
    return ready_key(rank) + (kind == Address::Kind::tcp ? "/tcp" : "/unix");
  }
};

// The source of an event: a kind, and the number of a rank.
enum class EventSource : std::uint32_t { bell, listener, attempt, outgoing, incoming };
constexpr std::uint64_t event_of(EventSource source, int number = 0) {
  return std::uint64_t{static_cast<std::uint32_t>(source)} << 32 | static_cast<std::uint32_t>(number);
}
// Has `epoll` report these events of a descriptor; `watched`: those that it reports already.
void watch(int epoll, int fd, std::uint64_t event, std::uint32_t wanted, std::uint32_t& watched);

class Neighbour {
 public:
  // References outlive the neighbour. `epoll` reports its events.
  Neighbour(int rank, const ChannelParts& parts, int epoll, Matcher& matcher, const PeerMemory& memory);

  // Why transfers with this rank fail.
  const Status& broken() const { return broken_; }
  void send(Transfer message) { outgoing_.send(std::move(message)); }
  // Completes a receive with a message of this rank that the matcher has kept.
  void deliver(Transfer receive, const Arrival& arrival);
  // Takes the connection that this rank has opened, unless there is one already.
  void accept(Socket socket);

  // Sends what it can, connects if there is something to send, and updates the watched events.
  void settle();
  void handle(EventSource source);
  Deadline next_deadline() const;
  void for_each_waiting(const std::function<void(Transfer&)>& visit) { outgoing_.for_each_waiting(visit); }

  // Ends all pending transfers, except those from which the receiver may still read what was sent.
  void end(const Status& reason);
  bool has_output() const { return outgoing_.has_output() || (incoming_ && incoming_->has_output()); }
  bool is_sending() const { return outgoing_.is_open(); }
  void finish_output() { outgoing_.finish_output(); }

 private:
  bool settle_link(auto& link, EventSource source, std::uint32_t& watched);
  void reach();
  bool find_address(Address& address);
  void advance_attempt();
  void not_reached(const Status& why);
  void suspect(const Status& why, Duration timeout);
  void lose_outgoing();
  void lose_incoming();
  void give_up();

  const int rank_;
  const std::string name_;
  const ChannelParts& parts_;
  const int epoll_;
  Matcher& matcher_;
  const PeerMemory& memory_;
  OutgoingLink outgoing_;
  std::unique_ptr<IncomingLink> incoming_;
  std::unique_ptr<ConnectionAttempt> attempt_;
  TimePoint next_try_{};                                     // to connect to it
  Duration pause_{};                                         // until the attempt after that
  int failures_ = 0;                                         // consecutive failures to connect
  std::uint32_t outgoing_events_ = 0, incoming_events_ = 0;  // watched events
  Status suspicion_;                                         // why it may be lost; takes effect
  Deadline verdict_ = Deadline::max();                       // at this time
  std::vector<Transfer> stranded_;                           // pending transfers of closed connections
  Status broken_;
  bool ended_ = false;
};

}  // namespace hvd
