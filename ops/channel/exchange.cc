#include "ops/channel/exchange.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "core/base/error.h"

namespace hvd {

namespace {

// Delays between two checks whether a rank is ready for messages.
constexpr Duration kFirstPause = std::chrono::milliseconds(1);
constexpr Duration kLongestPause = std::chrono::milliseconds(100);
constexpr int kMaxFailures = 50;
// Timeout for the addresses of a ready rank, which are in the store before it reports that it is ready.
constexpr Duration kAddressTime = std::chrono::seconds(10);
// How long the control plane has to report the cause of a closed connection.
constexpr Duration kVerdictTime = std::chrono::seconds(3);
constexpr Duration kCloseTime = std::chrono::seconds(1);
constexpr int kMaxNamed = 3;

// The source of an event: a kind, and the number of a listener or rank.
enum class About : std::uint32_t { bell, listener, attempt, outgoing, incoming };
constexpr std::uint64_t event_of(About about, int number = 0) {
  return std::uint64_t{static_cast<std::uint32_t>(about)} << 32 | static_cast<std::uint32_t>(number);
}

std::string ready_key(int rank) { return "channel/" + std::to_string(rank); }
std::string address_key(int rank, Address::Kind kind) {
  return ready_key(rank) + (kind == Address::Kind::tcp ? "/tcp" : "/unix");
}

// The address kind for a rank. Ranks of the same host use a Unix socket, if they may share anything.
Address::Kind way_to(int rank, const Topology& topology, const Config& config) {
  const bool same_host = topology.host_of[static_cast<std::size_t>(rank)] == topology.host();
  return same_host && config.data_plane.shared_memory ? Address::Kind::unix_abstract : Address::Kind::tcp;
}

}  // namespace

Exchange::Exchange(const Parts& parts, int bell) : parts_(parts), bell_(bell), epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_) throw Internal("epoll_create: " + error_text(errno));
  std::uint32_t watched = 0;
  watch(bell_, event_of(About::bell), EPOLLIN, watched);
}

Exchange::~Exchange() { end(Status(StatusCode::shut_down, "this rank has shut hvd down")); }

void Exchange::watch(int fd, std::uint64_t event, std::uint32_t wanted, std::uint32_t& watched) {
  if (wanted == watched) return;
  epoll_event entry{.events = wanted, .data = {.u64 = event}};
  if (epoll_ctl(epoll_.get(), watched == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &entry) != 0) {
    throw Internal("epoll_ctl: " + error_text(errno));
  }
  watched = wanted;
}

Exchange::Neighbour& Exchange::neighbour_of(int rank) {
  const auto found = neighbours_.find(rank);
  if (found != neighbours_.end()) return found->second;
  return neighbours_.emplace(rank, Neighbour{.rank = rank, .outgoing = OutgoingLink(parts_.topology.describe(rank))})
      .first->second;
}

// ---- Requests of the program

void Exchange::send(Transfer message) {
  Neighbour& neighbour = neighbour_of(message.message.peer);
  const Status& why_not = ended_.ok() ? neighbour.broken : ended_;
  if (!why_not.ok()) return complete(message, why_not);
  next_look_ = std::min(next_look_, message.since + parts_.config.timeouts.stall_warning);
  neighbour.outgoing.send(std::move(message));
}

void Exchange::receive(Transfer receive) {
  const Message& wanted = receive.message;
  if (auto arrival = matcher_.take_arrival(wanted.peer, wanted.channel, wanted.tag)) {
    Neighbour& neighbour = neighbour_of(arrival->source);
    if (neighbour.incoming) return neighbour.incoming->deliver(std::move(receive), *arrival);
    return deliver(std::move(receive), arrival->content, arrival->source, parts_.topology.describe(arrival->source));
  }
  const Status& why_not = ended_.ok() && wanted.peer != kAnyRank ? neighbour_of(wanted.peer).broken : ended_;
  if (!why_not.ok()) return complete(receive, why_not);
  next_look_ = std::min(next_look_, receive.since + parts_.config.timeouts.stall_warning);
  matcher_.keep(std::move(receive));
}

void Exchange::end(const Status& reason) {
  if (!ended_.ok()) return;
  ended_ = reason;
  for (Transfer& receive : matcher_.take_receives([](const Transfer&) { return true; })) complete(receive, reason);
  for (auto& [rank, neighbour] : neighbours_) {
    neighbour.attempt.reset();
    // A link without a partly sent frame stays open: the receiver may still read what was sent.
    const bool unfinished = !neighbour.outgoing.is_open() || neighbour.outgoing.has_output();
    std::vector<Transfer> open = unfinished ? neighbour.outgoing.give_up() : neighbour.outgoing.give_up_unsent();
    if (neighbour.incoming && neighbour.incoming->is_fetching()) {
      for (Transfer& receive : neighbour.incoming->give_up()) open.push_back(std::move(receive));
      neighbour.incoming.reset();
    }
    for (Transfer& transfer : std::exchange(neighbour.stranded, {})) open.push_back(std::move(transfer));
    for (Transfer& transfer : open) complete(transfer, reason);
    if (!neighbour.incoming) matcher_.drop_offers_from(rank);
  }
}

bool Exchange::any_output() const {
  return std::any_of(neighbours_.begin(), neighbours_.end(), [](const auto& entry) {
    return entry.second.outgoing.has_output() || (entry.second.incoming && entry.second.incoming->has_output());
  });
}

void Exchange::close() {
  const Deadline deadline = deadline_after(kCloseTime);
  while (any_output() && Clock::now() < deadline) turn(deadline);
  end(Status(StatusCode::shut_down, "this rank has shut hvd down"));
  for (auto& [rank, neighbour] : neighbours_) {
    if (neighbour.outgoing.is_open()) neighbour.outgoing.finish_output();
  }
  const auto is_read = [](const auto& entry) { return !entry.second.outgoing.is_open(); };
  while (!std::all_of(neighbours_.begin(), neighbours_.end(), is_read) && Clock::now() < deadline) turn(deadline);
}

// ---- The event loop

void Exchange::turn(Deadline deadline) {
  try {
    step(deadline);
  } catch (...) {
    end(current_exception_status());
  }
}

void Exchange::step(Deadline deadline) {
  if (!is_open_) open_listeners();
  for (auto& [rank, neighbour] : neighbours_) settle(neighbour);
  if (Clock::now() >= next_look_) look_for_stalls();
  const Deadline until = std::min(deadline, next_deadline());
  std::array<epoll_event, 64> events;
  const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                               poll_timeout(until == Deadline::max() ? std::nullopt : std::optional(until)));
  if (count < 0 && errno != EINTR) throw Internal("epoll_wait: " + error_text(errno));
  for (int i = 0; i < count; ++i) handle(events[static_cast<std::size_t>(i)].data.u64);
}

Deadline Exchange::next_deadline() const {
  Deadline next = next_look_;
  for (const Acceptor& listener : listeners_) next = std::min(next, listener.next_deadline());
  for (const auto& [rank, neighbour] : neighbours_) {
    if (ended_.ok()) next = std::min(next, neighbour.verdict);
    const OutgoingLink& outgoing = neighbour.outgoing;
    if (outgoing.has_waiting() && !outgoing.is_open() && !neighbour.attempt) next = std::min(next, neighbour.next_try);
  }
  return next;
}

void Exchange::handle(std::uint64_t event) {
  const auto about = static_cast<About>(event >> 32);
  const int number = static_cast<int>(event & 0xffffffff);
  if (about == About::bell) {
    std::uint64_t rings = 0;
    (void)!read(bell_, &rings, sizeof rings);
    return;
  }
  if (about == About::listener) return take_peers();
  const auto found = neighbours_.find(number);
  if (found == neighbours_.end()) return;
  Neighbour& neighbour = found->second;
  const auto describe = [&] { return parts_.topology.describe(neighbour.rank); };
  const auto gone = [&] {
    suspect(neighbour, Status(StatusCode::peer_lost, describe() + " closed its connection for messages"), kVerdictTime);
  };
  try {
    if (about == About::attempt && neighbour.attempt) advance_attempt(neighbour);
    if (about == About::outgoing && neighbour.outgoing.is_open() && !neighbour.outgoing.advance()) {
      lose_outgoing(neighbour);
      gone();
    }
    if (about == About::incoming && neighbour.incoming && !neighbour.incoming->advance()) {
      lose_incoming(neighbour);
      gone();
    }
  } catch (const Internal& error) {
    suspect(neighbour,
            Status(StatusCode::internal, "the messages of " + describe() + " make no sense: " + error.what()),
            Duration::zero());
    give_up(neighbour);
  }
}

// ---- Connections

void Exchange::open_listeners() {
  is_open_ = true;
  const Topology& topology = parts_.topology;
  std::vector<Listener> listeners;
  bool by[2] = {};
  for (int rank = 0; rank < topology.size; ++rank) {
    if (rank != topology.rank) by[way_to(rank, topology, parts_.config) == Address::Kind::tcp ? 1 : 0] = true;
  }
  if (by[0]) listeners.push_back(Listener::unix_abstract());
  if (by[1]) listeners.push_back(Listener::tcp(parts_.local_host));
  for (Listener& listener : listeners) {
    const Address address = listener.address();
    parts_.store.set(address_key(topology.rank, address.kind), address.to_string());
    listeners_.emplace_back(std::move(listener), parts_.job_key, Purpose::messages, parts_.log);
    std::uint32_t watched = 0;
    watch(listeners_.back().fd(), event_of(About::listener), EPOLLIN, watched);
  }
  parts_.store.add(ready_key(topology.rank), 1);
}

void Exchange::take_peers() {
  const Topology& topology = parts_.topology;
  for (Acceptor& listener : listeners_) {
    while (auto peer = listener.accept_now()) {
      const bool known = peer->rank >= 0 && peer->rank < topology.size && peer->rank != topology.rank;
      if (!known) continue;
      Neighbour& neighbour = neighbour_of(peer->rank);
      if (neighbour.incoming || !neighbour.broken.ok()) continue;  // a rank has one
      const bool readable = way_to(peer->rank, topology, parts_.config) == Address::Kind::unix_abstract;
      neighbour.incoming_events = 0;
      neighbour.incoming = std::make_unique<IncomingLink>(
          IncomingLink::Sender{.rank = peer->rank, .description = topology.describe(peer->rank), .same_host = readable},
          std::move(peer->socket), matcher_);
    }
  }
}

// Sends what it can, and updates the watched events.
void Exchange::settle(Neighbour& neighbour) {
  if (ended_.ok() && Clock::now() >= neighbour.verdict) give_up(neighbour);
  OutgoingLink& outgoing = neighbour.outgoing;
  if (outgoing.has_waiting() && !outgoing.is_open() && !neighbour.attempt) reach(neighbour);
  if (outgoing.is_open() &&
      !settle_link(neighbour, outgoing, event_of(About::outgoing, neighbour.rank), neighbour.outgoing_events)) {
    lose_outgoing(neighbour);
  }
  if (neighbour.incoming && !settle_link(neighbour, *neighbour.incoming, event_of(About::incoming, neighbour.rank),
                                         neighbour.incoming_events)) {
    lose_incoming(neighbour);
  }
}

// Returns false if the connection is closed.
bool Exchange::settle_link(Neighbour& neighbour, auto& link, std::uint64_t event, std::uint32_t& watched) {
  if (!link.flush()) {
    suspect(neighbour,
            Status(StatusCode::peer_lost,
                   "the connection for messages to " + parts_.topology.describe(neighbour.rank) + " broke"),
            kVerdictTime);
    return false;
  }
  watch(link.fd(), event, EPOLLIN | (link.has_output() ? std::uint32_t{EPOLLOUT} : 0), watched);
  return true;
}

bool Exchange::find_address(Neighbour& neighbour, Address& address) {
  if (parts_.store.add(ready_key(neighbour.rank), 0) == 0) return false;
  const Address::Kind way = way_to(neighbour.rank, parts_.topology, parts_.config);
  address = Address::parse(parts_.store.get(address_key(neighbour.rank, way), deadline_after(kAddressTime)));
  return true;
}

void Exchange::reach(Neighbour& neighbour) {
  const TimePoint now = Clock::now();
  if (now < neighbour.next_try || neighbour.verdict != Deadline::max()) return;
  neighbour.pause = std::clamp(2 * neighbour.pause, kFirstPause, kLongestPause);
  neighbour.next_try = now + neighbour.pause;
  Address address;
  if (!find_address(neighbour, address)) return;
  try {
    neighbour.attempt = std::make_unique<ConnectionAttempt>(address, parts_.job_key, parts_.topology.rank);
    std::uint32_t watched = 0;
    watch(neighbour.attempt->fd(), event_of(About::attempt, neighbour.rank), EPOLLIN | EPOLLOUT | EPOLLET, watched);
    advance_attempt(neighbour);
  } catch (const PeerLost& error) {
    not_reached(neighbour, error.status());
  }
}

void Exchange::not_reached(Neighbour& neighbour, const Status& why) {
  neighbour.attempt.reset();
  if (++neighbour.failures > kMaxFailures) suspect(neighbour, why, kVerdictTime);
}

void Exchange::advance_attempt(Neighbour& neighbour) {
  try {
    if (!neighbour.attempt->advance()) return;
  } catch (const PeerLost& error) {
    return not_reached(neighbour, error.status());
  }
  Socket socket = neighbour.attempt->take();
  neighbour.attempt.reset();
  neighbour.failures = 0;
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, socket.fd(), nullptr);
  neighbour.outgoing_events = 0;
  const PeerMemory::Introduction own = memory_.introduction();
  neighbour.outgoing.open(std::move(socket), {.kind = MessageFrame::Kind::hello,
                                              .id = static_cast<std::uint64_t>(own.process),
                                              .length = own.word,
                                              .address = own.address});
}

// ---- Failures

// Gives the control plane time to report the cause first.
void Exchange::suspect(Neighbour& neighbour, const Status& why, Duration timeout) {
  if (neighbour.verdict != Deadline::max() && timeout > Duration::zero()) return;
  neighbour.suspicion = why;
  neighbour.verdict = deadline_after(timeout);
}

void Exchange::lose_outgoing(Neighbour& neighbour) {
  for (Transfer& message : neighbour.outgoing.give_up()) neighbour.stranded.push_back(std::move(message));
}

void Exchange::lose_incoming(Neighbour& neighbour) {
  for (Transfer& receive : neighbour.incoming->give_up()) neighbour.stranded.push_back(std::move(receive));
  neighbour.incoming.reset();
  matcher_.drop_offers_from(neighbour.rank);
}

void Exchange::give_up(Neighbour& neighbour) {
  neighbour.broken = neighbour.suspicion;
  neighbour.verdict = Deadline::max();
  neighbour.attempt.reset();
  lose_outgoing(neighbour);
  if (neighbour.incoming) lose_incoming(neighbour);
  const int rank = neighbour.rank;
  auto open = matcher_.take_receives([rank](const Transfer& receive) { return receive.message.peer == rank; });
  for (Transfer& transfer : std::exchange(neighbour.stranded, {})) open.push_back(std::move(transfer));
  for (Transfer& transfer : open) complete(transfer, neighbour.broken);
}

std::string Exchange::waiting_text(const Transfer& transfer, bool is_send, TimePoint now) const {
  const int peer = transfer.message.peer;
  const auto waited = std::chrono::duration_cast<std::chrono::seconds>(now - transfer.since).count();
  return std::string(is_send ? "to send a message" : "for a message") + " of tag " +
         std::to_string(transfer.message.tag) + (is_send ? " to " : " from ") +
         (peer == kAnyRank ? "any rank" : parts_.topology.describe(peer)) + " (" + std::to_string(waited) + " s)";
}

void Exchange::look_for_stalls() {
  const Config& config = parts_.config;
  const TimePoint now = Clock::now();
  next_look_ = Deadline::max();
  if (!config.timeouts.stall_check || config.timeouts.stall_warning <= Duration::zero()) return;
  std::string told;
  int stalled = 0;
  const auto look = [&](Transfer& transfer, bool is_send) {
    const TimePoint late = transfer.since + config.timeouts.stall_warning;
    if (transfer.told_of) return;
    if (now < late) {
      next_look_ = std::min(next_look_, late);
      return;
    }
    transfer.told_of = true;
    if (++stalled <= kMaxNamed) told += (told.empty() ? "" : ", ") + waiting_text(transfer, is_send, now);
  };
  matcher_.for_each_receive([&](Transfer& receive) { look(receive, false); });
  for (auto& [rank, neighbour] : neighbours_) {
    neighbour.outgoing.for_each_waiting([&](Transfer& message) { look(message, true); });
  }
  if (stalled > kMaxNamed) told += ", and for " + std::to_string(stalled - kMaxNamed) + " more";
  if (stalled > 0) parts_.log.warning("stalled: waiting " + told);
}

}  // namespace hvd
