// Another rank with which this rank exchanges messages: the links in both directions, the attempts to connect to it,
// and the suspicion that it is lost. Used on the channel's thread.
//
// A rank that is ready for messages publishes its addresses in the store, and then sets the counter "channel/<rank>" to
// 1; senders poll the counter. A broken link is not an error at once: the job's control plane also detects a lost rank,
// and knows the cause (end()). Transfers with that rank fail with the link's error only if no cause is reported in
// time.
#pragma once

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
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

  // The kind of address at which this rank reaches another one: ranks of the same host use Unix sockets, unless they
  // must not share memory.
  Address::Kind address_kind(int rank) const {
    const bool same_host = topology.host_of[static_cast<std::size_t>(rank)] == topology.host();
    return same_host && config.data_plane.shared_memory ? Address::Kind::unix_abstract : Address::Kind::tcp;
  }
  // The keys of a rank in the store.
  static std::string ready_key(int rank) { return "channel/" + std::to_string(rank); }
  static std::string address_key(int rank, Address::Kind kind) {
    return ready_key(rank) + (kind == Address::Kind::tcp ? "/tcp" : "/unix");
  }
};

// The source of an event: a kind, and the number of a rank.
enum class EventSource : std::uint32_t { wakeup, listener, attempt, outgoing, incoming };
constexpr std::uint64_t event_of(EventSource source, int number = 0) {
  return std::uint64_t{static_cast<std::uint32_t>(source)} << 32 | static_cast<std::uint32_t>(number);
}
// Makes `epoll` report the `wanted` events of a descriptor as `event`. `watched`: those that it reports already;
// updated.
inline void watch(int epoll, int fd, std::uint64_t event, std::uint32_t wanted, std::uint32_t& watched) {
  if (wanted == watched) return;
  epoll_event entry{.events = wanted, .data = {.u64 = event}};
  if (epoll_ctl(epoll, watched == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &entry) != 0) {
    throw Internal("epoll_ctl: " + error_text(errno));
  }
  watched = wanted;
}

class ChannelPeer {
 public:
  // References outlive the object. `epoll` reports its events.
  ChannelPeer(int rank, const ChannelParts& parts, int epoll, Matcher& matcher, const PeerMemory& memory)
      : rank_(rank),
        name_(parts.topology.describe(rank)),
        parts_(parts),
        epoll_(epoll),
        matcher_(matcher),
        memory_(memory),
        outgoing_(name_) {}

  // Why transfers with the other rank fail; ok: they do not.
  const Status& broken() const { return broken_; }
  void send(Transfer message) { outgoing_.send(std::move(message)); }

  // Completes a receive with a message of the other rank that the matcher has kept.
  void deliver(Transfer receive, const Arrival& arrival) {
    if (incoming_) return incoming_->deliver(std::move(receive), arrival);
    hvd::deliver(std::move(receive), arrival.content, arrival.source, name_);
  }

  // Takes the connection that the other rank has opened, unless there is one already.
  void accept(Socket socket) {
    if (incoming_ || !broken_.ok()) return;
    const bool readable = parts_.address_kind(rank_) == Address::Kind::unix_abstract;
    incoming_events_ = 0;
    incoming_ = std::make_unique<IncomingLink>(
        IncomingLink::Sender{.rank = rank_, .description = name_, .same_host = readable}, std::move(socket), matcher_);
  }

  // Sends what it can, connects if there is something to send, and updates the watched events.
  void make_progress() {
    if (!ended_ && Clock::now() >= broken_at_) mark_broken();
    if (outgoing_.has_waiting() && !outgoing_.is_open() && !attempt_) start_connecting();
    if (outgoing_.is_open() && !flush_link(outgoing_, EventSource::outgoing, outgoing_events_)) lose_outgoing();
    if (incoming_ && !flush_link(*incoming_, EventSource::incoming, incoming_events_)) lose_incoming();
  }

  void handle(EventSource source) {
    bool closed = false;
    try {
      if (source == EventSource::attempt && attempt_) advance_attempt();
      if (source == EventSource::outgoing && outgoing_.is_open() && !outgoing_.advance()) {
        lose_outgoing();
        closed = true;
      }
      if (source == EventSource::incoming && incoming_ && !incoming_->advance()) {
        lose_incoming();
        closed = true;
      }
    } catch (const Internal& error) {
      suspect(Status(StatusCode::internal, "the messages of " + name_ + " make no sense: " + error.what()),
              Duration::zero());
      return mark_broken();
    }
    if (closed) suspect(Status(StatusCode::peer_lost, name_ + " closed its connection for messages"), kReportTimeout);
  }

  Deadline next_deadline() const {
    const bool waits = outgoing_.has_waiting() && !outgoing_.is_open() && !attempt_;
    return std::min(ended_ ? Deadline::max() : broken_at_, waits ? next_try_ : Deadline::max());
  }

  void for_each_waiting(const std::function<void(Transfer&)>& visit) { outgoing_.for_each_waiting(visit); }

  // Ends all pending transfers. A connection stays open if the other end may still read what was sent on it.
  void end(const Status& reason) {
    ended_ = true;
    attempt_.reset();
    // A link without a partly sent frame stays open: the receiver may still read what was sent.
    const bool unfinished = !outgoing_.is_open() || outgoing_.has_output();
    append(stranded_, unfinished ? outgoing_.take_pending() : outgoing_.take_unsent());
    if (incoming_ && incoming_->is_fetching()) {
      append(stranded_, incoming_->take_pending());
      incoming_.reset();
    }
    for (Transfer& transfer : std::exchange(stranded_, {})) complete(transfer, reason);
    if (!incoming_) matcher_.drop_offers_from(rank_);
  }

  bool has_output() const { return outgoing_.has_output() || (incoming_ && incoming_->has_output()); }
  bool is_sending() const { return outgoing_.is_open(); }
  void finish_output() { outgoing_.finish_output(); }

 private:
  // How long the control plane has to report the cause of a closed connection.
  static constexpr Duration kReportTimeout = std::chrono::seconds(3);

  static void append(std::vector<Transfer>& to, std::vector<Transfer> more) {
    to.insert(to.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  }

  // Returns false if the connection is closed.
  bool flush_link(auto& link, EventSource source, std::uint32_t& watched) {
    if (!link.flush()) {
      suspect(Status(StatusCode::peer_lost, "the connection for messages to " + name_ + " broke"), kReportTimeout);
      return false;
    }
    const std::uint32_t wanted = EPOLLIN | (link.has_output() ? std::uint32_t{EPOLLOUT} : 0);
    watch(epoll_, link.fd(), event_of(source, rank_), wanted, watched);
    return true;
  }

  void start_connecting() {
    const TimePoint now = Clock::now();
    if (now < next_try_ || broken_at_ != Deadline::max()) return;
    pause_ = std::clamp<Duration>(2 * pause_, 1ms, 100ms);  // between two checks whether the rank is ready
    next_try_ = now + pause_;
    Address address;
    if (!find_address(address)) return;
    try {
      attempt_ = std::make_unique<ConnectionAttempt>(address, parts_.job_key, Purpose::messages, parts_.topology.rank);
      std::uint32_t watched = 0;
      watch(epoll_, attempt_->fd(), event_of(EventSource::attempt, rank_), EPOLLIN | EPOLLOUT | EPOLLET, watched);
      advance_attempt();
    } catch (const PeerLost& error) {
      not_reached(error.status());
    }
  }

  bool find_address(Address& address) {
    if (parts_.store.add(ChannelParts::ready_key(rank_), 0) == 0) return false;
    const std::string key = ChannelParts::address_key(rank_, parts_.address_kind(rank_));
    address = Address::parse(parts_.store.get(key, deadline_after(10s)));  // it was set before the rank was ready
    return true;
  }

  void advance_attempt() {
    try {
      if (!attempt_->advance()) return;
    } catch (const PeerLost& error) {
      return not_reached(error.status());
    }
    Socket socket = attempt_->take();
    attempt_.reset();
    failures_ = 0;
    epoll_ctl(epoll_, EPOLL_CTL_DEL, socket.fd(), nullptr);
    outgoing_events_ = 0;
    const PeerMemory::AccessProbe own = memory_.local_probe();
    outgoing_.open(std::move(socket), {.kind = MessageFrame::Kind::hello,
                                       .id = static_cast<std::uint64_t>(own.process),
                                       .length = own.word,
                                       .address = own.address});
  }

  void not_reached(const Status& why) {
    attempt_.reset();
    constexpr int kMaxFailures = 50;
    if (++failures_ > kMaxFailures) suspect(why, kReportTimeout);
  }

  // Gives the control plane time to report the cause first.
  void suspect(const Status& why, Duration timeout) {
    if (broken_at_ != Deadline::max() && timeout > Duration::zero()) return;
    suspected_cause_ = why;
    broken_at_ = deadline_after(timeout);
  }

  void lose_outgoing() { append(stranded_, outgoing_.take_pending()); }

  void lose_incoming() {
    append(stranded_, incoming_->take_pending());
    incoming_.reset();
    matcher_.drop_offers_from(rank_);
  }

  void mark_broken() {
    broken_ = suspected_cause_;
    broken_at_ = Deadline::max();
    attempt_.reset();
    lose_outgoing();
    if (incoming_) lose_incoming();
    auto open = matcher_.take_receives([this](const Transfer& receive) { return receive.message.peer == rank_; });
    append(open, std::exchange(stranded_, {}));
    for (Transfer& transfer : open) complete(transfer, broken_);
  }

  const int rank_;
  const std::string name_;
  const ChannelParts& parts_;
  const int epoll_;
  Matcher& matcher_;
  const PeerMemory& memory_;
  OutgoingLink outgoing_;
  std::unique_ptr<IncomingLink> incoming_;
  std::unique_ptr<ConnectionAttempt> attempt_;
  TimePoint next_try_{};                                     // when to try to connect
  Duration pause_{};                                         // between two tries
  int failures_ = 0;                                         // consecutive failures to connect
  std::uint32_t outgoing_events_ = 0, incoming_events_ = 0;  // watched events
  Status suspected_cause_;                                   // why it may be lost
  Deadline broken_at_ = Deadline::max();                     // when the suspicion becomes broken_
  std::vector<Transfer> stranded_;                           // pending transfers of closed connections
  Status broken_;                                            // why transfers with the other rank fail
  bool ended_ = false;
};

}  // namespace hvd
