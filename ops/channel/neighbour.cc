#include "ops/channel/neighbour.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
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

void append(std::vector<Transfer>& to, std::vector<Transfer> more) {
  to.insert(to.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

}  // namespace

Address::Kind ChannelParts::address_kind(int rank) const {
  const bool same_host = topology.host_of[static_cast<std::size_t>(rank)] == topology.host();
  return same_host && config.data_plane.shared_memory ? Address::Kind::unix_abstract : Address::Kind::tcp;
}

void watch(int epoll, int fd, std::uint64_t event, std::uint32_t wanted, std::uint32_t& watched) {
  if (wanted == watched) return;
  epoll_event entry{.events = wanted, .data = {.u64 = event}};
  if (epoll_ctl(epoll, watched == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &entry) != 0) {
    throw Internal("epoll_ctl: " + error_text(errno));
  }
  watched = wanted;
}

Neighbour::Neighbour(int rank, const ChannelParts& parts, int epoll, Matcher& matcher, const PeerMemory& memory)
    : rank_(rank),
      name_(parts.topology.describe(rank)),
      parts_(parts),
      epoll_(epoll),
      matcher_(matcher),
      memory_(memory),
      outgoing_(name_) {}

void Neighbour::deliver(Transfer receive, const Arrival& arrival) {
  if (incoming_) return incoming_->deliver(std::move(receive), arrival);
  hvd::deliver(std::move(receive), arrival.content, arrival.source, name_);
}

void Neighbour::accept(Socket socket) {
  if (incoming_ || !broken_.ok()) return;
  const bool readable = parts_.address_kind(rank_) == Address::Kind::unix_abstract;
  incoming_events_ = 0;
  incoming_ = std::make_unique<IncomingLink>(
      IncomingLink::Sender{.rank = rank_, .description = name_, .same_host = readable}, std::move(socket), matcher_);
}

void Neighbour::settle() {
  if (!ended_ && Clock::now() >= verdict_) give_up();
  if (outgoing_.has_waiting() && !outgoing_.is_open() && !attempt_) reach();
  if (outgoing_.is_open() && !settle_link(outgoing_, EventSource::outgoing, outgoing_events_)) lose_outgoing();
  if (incoming_ && !settle_link(*incoming_, EventSource::incoming, incoming_events_)) lose_incoming();
}

// Returns false if the connection is closed.
bool Neighbour::settle_link(auto& link, EventSource source, std::uint32_t& watched) {
  if (!link.flush()) {
    suspect(Status(StatusCode::peer_lost, "the connection for messages to " + name_ + " broke"), kVerdictTime);
    return false;
  }
  const std::uint32_t wanted = EPOLLIN | (link.has_output() ? std::uint32_t{EPOLLOUT} : 0);
  watch(epoll_, link.fd(), event_of(source, rank_), wanted, watched);
  return true;
}

void Neighbour::handle(EventSource source) {
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
    return give_up();
  }
  if (closed) suspect(Status(StatusCode::peer_lost, name_ + " closed its connection for messages"), kVerdictTime);
}

Deadline Neighbour::next_deadline() const {
  const bool waits = outgoing_.has_waiting() && !outgoing_.is_open() && !attempt_;
  return std::min(ended_ ? Deadline::max() : verdict_, waits ? next_try_ : Deadline::max());
}

void Neighbour::end(const Status& reason) {
  ended_ = true;
  attempt_.reset();
  // A link without a partly sent frame stays open: the receiver may still read what was sent.
  const bool unfinished = !outgoing_.is_open() || outgoing_.has_output();
  append(stranded_, unfinished ? outgoing_.give_up() : outgoing_.give_up_unsent());
  if (incoming_ && incoming_->is_fetching()) {
    append(stranded_, incoming_->give_up());
    incoming_.reset();
  }
  for (Transfer& transfer : std::exchange(stranded_, {})) complete(transfer, reason);
  if (!incoming_) matcher_.drop_offers_from(rank_);
}

// ---- Connecting

bool Neighbour::find_address(Address& address) {
  if (parts_.store.add(ChannelParts::ready_key(rank_), 0) == 0) return false;
  const std::string key = ChannelParts::address_key(rank_, parts_.address_kind(rank_));
  address = Address::parse(parts_.store.get(key, deadline_after(kAddressTime)));
  return true;
}

void Neighbour::reach() {
  const TimePoint now = Clock::now();
  if (now < next_try_ || verdict_ != Deadline::max()) return;
  pause_ = std::clamp(2 * pause_, kFirstPause, kLongestPause);
  next_try_ = now + pause_;
  Address address;
  if (!find_address(address)) return;
  try {
    attempt_ = std::make_unique<ConnectionAttempt>(address, parts_.job_key, parts_.topology.rank);
    std::uint32_t watched = 0;
    watch(epoll_, attempt_->fd(), event_of(EventSource::attempt, rank_), EPOLLIN | EPOLLOUT | EPOLLET, watched);
    advance_attempt();
  } catch (const PeerLost& error) {
    not_reached(error.status());
  }
}

void Neighbour::not_reached(const Status& why) {
  attempt_.reset();
  if (++failures_ > kMaxFailures) suspect(why, kVerdictTime);
}

void Neighbour::advance_attempt() {
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
  const PeerMemory::Introduction own = memory_.introduction();
  outgoing_.open(std::move(socket), {.kind = MessageFrame::Kind::hello,
                                     .id = static_cast<std::uint64_t>(own.process),
                                     .length = own.word,
                                     .address = own.address});
}

// ---- Failures

// Gives the control plane time to report the cause first.
void Neighbour::suspect(const Status& why, Duration timeout) {
  if (verdict_ != Deadline::max() && timeout > Duration::zero()) return;
  suspicion_ = why;
  verdict_ = deadline_after(timeout);
}

void Neighbour::lose_outgoing() { append(stranded_, outgoing_.give_up()); }

void Neighbour::lose_incoming() {
  append(stranded_, incoming_->give_up());
  incoming_.reset();
  matcher_.drop_offers_from(rank_);
}

void Neighbour::give_up() {
  broken_ = suspicion_;
  verdict_ = Deadline::max();
  attempt_.reset();
  lose_outgoing();
  if (incoming_) lose_incoming();
  auto open = matcher_.take_receives([this](const Transfer& receive) { return receive.message.peer == rank_; });
  append(open, std::exchange(stranded_, {}));
  for (Transfer& transfer : open) complete(transfer, broken_);
}

}  // namespace hvd
