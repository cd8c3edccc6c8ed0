// All of a rank's messages: the links to the other ranks, made when there is something to send, and the one wait for
// everything that happens on them. Driven by the channel's thread (socket_channel.h), which alone uses it.
//
// A rank that is ready for messages listens, and says so in the store: "channel/<rank>" counts to 1 when its addresses
// are there. Who wants to send to it asks for that count from time to time. A link that breaks is not the news: the
// job's control plane hears, too, that a rank is gone, and knows why (end()); only if it says nothing, the messages of
// that rank fail by themselves.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/log.h"
#include "core/config.h"
#include "core/net/authentication.h"
#include "core/rendezvous/store.h"
#include "core/rendezvous/topology.h"
#include "ops/channel/connection_attempt.h"
#include "ops/channel/incoming_link.h"
#include "ops/channel/matcher.h"
#include "ops/channel/outgoing_link.h"

namespace hvd {

class Exchange {
 public:
  // References outlive the exchange.
  struct Parts {
    const Topology& topology;
    Store& store;
    const JobKey& job_key;
    const Config& config;
    const Log& log;
    std::string local_host;
  };

  // `bell`: an eventfd that ends a wait.
  Exchange(const Parts& parts, int bell);
  // Ends what is left.
  ~Exchange();

  void send(Transfer message);
  void receive(Transfer receive);
  // What is under way, and later sends, end with the reason. The first one counts.
  void end(const Status& reason);
  // Lets the others have what they can still read, for a second at most.
  void close();

  // Waits until something happens, moves what can be moved. What fails ends the exchange.
  void turn() { turn(Deadline::max()); }

 private:
  // Another rank that there is something with.
  struct Neighbour {
    int rank;
    OutgoingLink outgoing;
    std::unique_ptr<IncomingLink> incoming = nullptr;
    std::unique_ptr<ConnectionAttempt> attempt = nullptr;
    TimePoint next_try{};                                    // to reach it
    Duration pause{};                                        // until the one after that
    int failures = 0;                                        // to connect, in a row
    std::uint32_t outgoing_events = 0, incoming_events = 0;  // that are watched
    Status suspicion{};                                      // why it may be gone; counts
    Deadline verdict = Deadline::max();                      // from then on
    std::vector<Transfer> stranded{};                        // what was under way on connections that are gone
    Status broken{};                                         // why nothing goes to it or comes from it
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
