// All messages of a rank: the links to the other ranks, created when there is a message to send, and the event loop for
// all of them. Used only by the channel's thread (socket_channel.h).
//
// A rank that is ready for messages listens and reports this in the store: the counter "channel/<rank>" is 1 when its
// addresses are there. A rank that wants to send to it polls that counter. A broken link alone is not reported: the
// job's control plane also detects a lost rank, and knows the cause (end()); only without such a report the messages of
// that rank fail with the link's error.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/log.h"
#include "core/bootstrap/store.h"
#include "core/bootstrap/topology.h"
#include "core/config.h"
#include "core/net/authentication.h"
#include "ops/channel/connection_attempt.h"
#include "ops/channel/incoming_link.h"
#include "ops/channel/matcher.h"
#include "ops/channel/outgoing_link.h"

namespace hvd {

class Exchange {
 public:
  // The references outlive the exchange.
  struct Parts {
    const Topology& topology;
    Store& store;
    const JobKey& job_key;
    const Config& config;
    const Log& log;
    std::string local_host;
  };

  // `bell`: an eventfd that interrupts a wait.
  Exchange(const Parts& parts, int bell);
  // Ends the remaining transfers.
  ~Exchange();

  void send(Transfer message);
  void receive(Transfer receive);
  // Ends all pending transfers and later sends with the reason. The first call counts.
  void end(const Status& reason);
  // Lets the other ranks read what was sent to them, for at most a second.
  void close();

  // Waits for an event and makes progress on all links. An error ends the exchange.
  void turn() { turn(Deadline::max()); }

 private:
  // Another rank with which this rank exchanges messages.
  struct Neighbour {
    int rank;
    OutgoingLink outgoing;
    std::unique_ptr<IncomingLink> incoming = nullptr;
    std::unique_ptr<ConnectionAttempt> attempt = nullptr;
    TimePoint next_try{};                                    // to connect to it
    Duration pause{};                                        // until the attempt after that
    int failures = 0;                                        // consecutive failures to connect
    std::uint32_t outgoing_events = 0, incoming_events = 0;  // watched events
    Status suspicion{};                                      // why it may be lost; takes effect
    Deadline verdict = Deadline::max();                      // at this time
    std::vector<Transfer> stranded{};                        // pending transfers of closed connections
    Status broken{};                                         // why transfers with this rank fail
  };

  void turn(Deadline deadline);
  void step(Deadline deadline);
  void open_listeners();
  Deadline next_deadline() const;
  void handle(std::uint64_t event);
  void take_peers();
  void settle(Neighbour& neighbour);
  bool settle_link(Neighbour& neighbour, auto& link, std::uint64_t event, std::uint32_t& watched);
  void reach(Neighbour& neighbour);
  bool find_address(Neighbour& neighbour, Address& address);
  void advance_attempt(Neighbour& neighbour);
  void not_reached(Neighbour& neighbour, const Status& why);
  void suspect(Neighbour& neighbour, const Status& why, Duration timeout);
  void lose_outgoing(Neighbour& neighbour);
  void lose_incoming(Neighbour& neighbour);
  void give_up(Neighbour& neighbour);
  void look_for_stalls();
  std::string waiting_text(const Transfer& transfer, bool is_send, TimePoint now) const;
  bool any_output() const;
  Neighbour& neighbour_of(int rank);
  void watch(int fd, std::uint64_t event, std::uint32_t wanted, std::uint32_t& watched);

  const Parts parts_;
  const int bell_;
  FileDescriptor epoll_;
  bool is_open_ = false;
  std::vector<Acceptor> listeners_;
  PeerMemory memory_;
  Matcher matcher_;
  std::map<int, Neighbour> neighbours_;
  Status ended_;
  Deadline next_look_ = Deadline::max();  // for stalls
};

}  // namespace hvd
