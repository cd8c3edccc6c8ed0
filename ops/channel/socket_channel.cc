#include "ops/channel/socket_channel.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/mutex.h"
#include "core/base/process.h"
#include "core/net/socket.h"
#include "ops/channel/channel_peer.h"
#include "ops/channel/matcher.h"
#include "ops/host/peer_memory.h"

namespace hvd {

namespace {

constexpr Duration kCloseTime = std::chrono::seconds(1);
constexpr int kMaxNamed = 3;

// Resets an eventfd that has become readable.
void reset_wakeup(int wakeup) {
  std::uint64_t count = 0;
  (void)!read(wakeup, &count, sizeof count);
}

Status shut_down() { return {StatusCode::shut_down, "this rank has shut hvd down"}; }

// All messages of a rank: its peers, made when there is a message to send or a connection to accept, and the event loop
// for all of them. Used only by the channel's thread.
class ChannelLoop {
 public:
  // `wakeup`: an eventfd that interrupts a wait.
  ChannelLoop(const ChannelParts& parts, int wakeup)
      : parts_(parts), wakeup_(wakeup), epoll_(epoll_create1(EPOLL_CLOEXEC)) {
    if (!epoll_) throw Internal("epoll_create: " + error_text(errno));
    std::uint32_t watched = 0;
    watch(epoll_.get(), wakeup_, event_of(EventSource::wakeup), EPOLLIN, watched);
  }

  // Ends the remaining transfers.
  ~ChannelLoop() { end(shut_down()); }

  void send(Transfer message) {
    ChannelPeer& peer = peer_of(message.message.peer);
    const Status& why_not = ended_.ok() ? peer.broken() : ended_;
    if (!why_not.ok()) return complete(message, why_not);
    next_stall_check_ = std::min(next_stall_check_, message.since + parts_.config.timeouts.stall_warning);
    peer.send(std::move(message));
  }

  void receive(Transfer receive) {
    const Message& wanted = receive.message;
    if (auto arrival = matcher_.take_arrival(wanted.peer, wanted.channel, wanted.tag)) {
      // A message that was only offered may be gone: after the end of the job its sender may reuse the memory.
      if (arrival->offer && !ended_.ok()) return complete(receive, ended_);
      return peer_of(arrival->source).deliver(std::move(receive), *arrival);
    }
    const Status& why_not = ended_.ok() && wanted.peer != kAnyRank ? peer_of(wanted.peer).broken() : ended_;
    if (!why_not.ok()) return complete(receive, why_not);
    next_stall_check_ = std::min(next_stall_check_, receive.since + parts_.config.timeouts.stall_warning);
    matcher_.keep(std::move(receive));
  }

  // Ends all pending transfers and later sends with the reason. Later calls have no effect.
  void end(const Status& reason) {
    if (!ended_.ok()) return;
    ended_ = reason;
    for (Transfer& receive : matcher_.take_receives([](const Transfer&) { return true; })) complete(receive, reason);
    for (auto& [rank, peer] : peers_) peer.end(reason);
  }

  // Gives the other ranks time to read what was sent to them: at most a second.
  void close() {
    const Deadline deadline = deadline_after(kCloseTime);
    while (any_output() && Clock::now() < deadline) run_once(deadline);
    end(shut_down());
    for (auto& [rank, peer] : peers_) {
      if (peer.is_sending()) peer.finish_output();
    }
    const auto is_sending = [](const auto& entry) { return entry.second.is_sending(); };
    while (std::ranges::any_of(peers_, is_sending) && Clock::now() < deadline) run_once(deadline);
  }

  // Waits for an event and makes progress on all links. An error ends all transfers.
  void run_once(Deadline deadline = Deadline::max()) {
    try {
      poll_once(deadline);
    } catch (...) {
      end(current_exception_status());
      acceptor_.reset();  // a listener that cannot accept stays ready
    }
  }

 private:
  void poll_once(Deadline deadline) {
    if (!acceptor_ && ended_.ok()) open_listeners();
    for (auto& [rank, peer] : peers_) peer.make_progress();
    if (Clock::now() >= next_stall_check_) look_for_stalls();
    const Deadline until = std::min(deadline, next_deadline());
    std::array<epoll_event, 64> events;
    const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                                 poll_timeout(until == Deadline::max() ? std::nullopt : std::optional(until)));
    if (count < 0 && errno != EINTR) throw Internal("epoll_wait: " + error_text(errno));
    for (int i = 0; i < count; ++i) handle(events[static_cast<std::size_t>(i)].data.u64);
  }

  void open_listeners() {
    const int own = parts_.topology.rank;
    bool wants_unix = false, wants_tcp = false;
    for (int rank = 0; rank < parts_.topology.size; ++rank) {
      if (rank != own) (parts_.address_kind(rank) == Address::Kind::tcp ? wants_tcp : wants_unix) = true;
    }
    std::vector<Listener> listeners;
    if (wants_unix) listeners.push_back(Listener::unix_abstract());
    if (wants_tcp) listeners.push_back(Listener::tcp(parts_.local_host));
    for (const Listener& listener : listeners) {
      const Address& address = listener.address();
      parts_.store.set(ChannelParts::address_key(own, address.kind), address.to_string());
    }
    acceptor_.emplace(std::move(listeners), parts_.job_key, Purpose::messages, parts_.log);
    std::uint32_t watched = 0;
    watch(epoll_.get(), acceptor_->fd(), event_of(EventSource::listener), EPOLLIN, watched);
    parts_.store.add(ChannelParts::ready_key(own), 1);
  }

  Deadline next_deadline() const {
    Deadline next = next_stall_check_;
    if (acceptor_) next = std::min(next, acceptor_->next_deadline());
    for (const auto& [rank, peer] : peers_) next = std::min(next, peer.next_deadline());
    return next;
  }

  void handle(std::uint64_t event) {
    const auto source = static_cast<EventSource>(event >> 32);
    if (source == EventSource::wakeup) return reset_wakeup(wakeup_);
    if (source == EventSource::listener) return accept_peers();
    const auto found = peers_.find(static_cast<int>(event & 0xffffffff));
    if (found != peers_.end()) found->second.handle(source);
  }

  void accept_peers() {
    const Topology& topology = parts_.topology;
    while (auto peer = acceptor_->accept_now()) {
      const bool known = peer->rank >= 0 && peer->rank < topology.size && peer->rank != topology.rank;
      if (known) peer_of(peer->rank).accept(std::move(peer->socket));
    }
  }

  void look_for_stalls() {
    const Config& config = parts_.config;
    const TimePoint now = Clock::now();
    next_stall_check_ = Deadline::max();
    if (!config.timeouts.stall_check || config.timeouts.stall_warning <= Duration::zero()) return;
    std::string text;
    int stalled = 0;
    const auto check = [&](Transfer& transfer, bool is_send) {
      const TimePoint late = transfer.since + config.timeouts.stall_warning;
      if (transfer.stall_logged) return;
      if (now < late) {
        next_stall_check_ = std::min(next_stall_check_, late);
        return;
      }
      transfer.stall_logged = true;
      if (++stalled <= kMaxNamed) text += (text.empty() ? "" : ", ") + waiting_text(transfer, is_send, now);
    };
    matcher_.for_each_receive([&](Transfer& receive) { check(receive, false); });
    for (auto& [rank, peer] : peers_) {
      peer.for_each_waiting([&](Transfer& message) { check(message, true); });
    }
    if (stalled > kMaxNamed) text += ", and for " + std::to_string(stalled - kMaxNamed) + " more";
    if (stalled > 0) parts_.log.warning("stalled: waiting " + text);
  }

  std::string waiting_text(const Transfer& transfer, bool is_send, TimePoint now) const {
    const int peer = transfer.message.peer;
    const auto waited = std::chrono::duration_cast<std::chrono::seconds>(now - transfer.since).count();
    return std::string(is_send ? "to send a message" : "for a message") + " of tag " +
           std::to_string(transfer.message.tag) + (is_send ? " to " : " from ") +
           (peer == kAnyRank ? "any rank" : parts_.topology.describe(peer)) + " (" + std::to_string(waited) + " s)";
  }

  bool any_output() const {
    return std::ranges::any_of(peers_, [](const auto& entry) { return entry.second.has_output(); });
  }

  ChannelPeer& peer_of(int rank) {
    return peers_.try_emplace(rank, rank, parts_, epoll_.get(), matcher_, memory_).first->second;
  }

  const ChannelParts parts_;
  const int wakeup_;
  FileDescriptor epoll_;
  std::optional<Acceptor> acceptor_;  // created by the first step
  PeerMemory memory_;
  Matcher matcher_;
  std::map<int, ChannelPeer> peers_;
  Status ended_;
  Deadline next_stall_check_ = Deadline::max();
};

class SocketChannel final : public Channel {
 public:
  explicit SocketChannel(const BackendContext& context)
      : parts_{.topology = context.topology,
               .store = context.store,
               .job_key = context.job_key,
               .config = context.config,
               .log = context.log,
               .local_host = context.local_host_address} {}

  ~SocketChannel() override { close(); }

  SocketChannel(const SocketChannel&) = delete;
  SocketChannel& operator=(const SocketChannel&) = delete;

  void send(const Message& message, EngineReference operation) override {
    hand_over(true, message, std::move(operation));
  }

  void receive(const Message& message, EngineReference operation) override {
    hand_over(false, message, std::move(operation));
  }

  void end(const Status& reason) override {
    const MutexLock lock(mutex_);
    if (!orders_.end.ok()) return;
    orders_.end = reason;
    if (!closed_ && thread_.joinable()) ring();  // close() joins the thread without the lock
  }

  void close() override {
    {
      const MutexLock lock(mutex_);
      if (std::exchange(closed_, true)) return;
      orders_.close = true;
      if (!thread_.joinable()) return;
      ring();
    }
    thread_.join();
  }

 private:
  // Requests to the thread, performed in this order.
  struct Orders {
    struct Order {
      bool is_send;
      Transfer transfer;
    };
    std::vector<Order> transfers;
    Status end;
    bool close = false;
  };

  void hand_over(bool is_send, const Message& message, EngineReference operation) {
    Transfer transfer{.message = message, .operation = std::move(operation), .since = Clock::now()};
    MutexLock lock(mutex_);
    if (closed_) {
      lock.unlock();
      return complete(transfer, shut_down());
    }
    if (!thread_.joinable()) {
      wakeup_ = FileDescriptor(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
      if (!wakeup_) throw Internal("eventfd: " + error_text(errno));
      thread_ = start_thread("hvd-channel", [this] { run_thread(); });
    }
    const bool first = orders_.transfers.empty();
    orders_.transfers.push_back({is_send, std::move(transfer)});
    lock.unlock();
    if (first) ring();
  }

  void ring() const {
    const std::uint64_t one = 1;
    (void)!write(wakeup_.get(), &one, sizeof one);
  }

  // Returns when the channel closes. An error ends all transfers, also later ones.
  void run_thread() {
    std::optional<ChannelLoop> loop;
    Orders orders;
    try {
      loop.emplace(parts_, wakeup_.get());
      for (;;) {
        orders = take_orders();
        for (auto& [is_send, transfer] : orders.transfers) {
          is_send ? loop->send(std::move(transfer)) : loop->receive(std::move(transfer));
        }
        if (!orders.end.ok()) loop->end(orders.end);
        if (orders.close) return loop->close();
        loop->run_once();
      }
    } catch (...) {
      const Status reason = current_exception_status();
      if (loop) loop->end(reason);
      refuse(std::move(orders), reason);
    }
  }

  // Answers orders with the reason until the channel closes; the first ones may have been performed in part.
  void refuse(Orders orders, const Status& reason) {
    for (;;) {
      for (auto& [is_send, transfer] : orders.transfers) {
        if (transfer.operation) complete(transfer, reason);
      }
      if (orders.close) return;
      wait_ready(wakeup_.get(), false, Deadline::max());
      reset_wakeup(wakeup_.get());
      orders = take_orders();
    }
  }

  Orders take_orders() {
    const MutexLock lock(mutex_);
    Orders taken{.transfers = std::exchange(orders_.transfers, {}), .end = orders_.end, .close = orders_.close};
    return taken;
  }

  const ChannelParts parts_;
  FileDescriptor wakeup_;
  Mutex mutex_;
  Orders orders_ GUARDED_BY(mutex_);
  bool closed_ GUARDED_BY(mutex_) = false;
  std::thread thread_;  // started once, under mutex_
};

}  // namespace

std::unique_ptr<Channel> make_socket_channel(const BackendContext& context) {
  return std::make_unique<SocketChannel>(context);
}

}  // namespace hvd
