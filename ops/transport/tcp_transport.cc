#include "ops/transport/tcp_transport.h"

#include <poll.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/base/error.h"

namespace hvd {

namespace {

constexpr std::size_t kMessagesPerSend = 16;
constexpr std::size_t kMessagesPerReceive = 8;

// Appends buffers in order, without the first `skip` bytes of the whole.
class ScatterList {
 public:
  explicit ScatterList(std::size_t skip) : skip_(skip) {}

  bool has_room_for_message() const { return count_ + 2 <= buffers_.size(); }

  void append(std::span<std::byte> bytes) {
    const std::size_t skipped = std::min(skip_, bytes.size());
    skip_ -= skipped;
    if (skipped == bytes.size()) return;
    buffers_[count_++] = {.iov_base = bytes.data() + skipped, .iov_len = bytes.size() - skipped};
  }

  // Returns the number of bytes read; 0 if none are available; empty if the connection is closed or broken.
  std::optional<std::size_t> receive(int fd) {
    msghdr message{};
    message.msg_iov = buffers_.data();
    message.msg_iovlen = count_;
    for (;;) {
      const ssize_t received = recvmsg(fd, &message, MSG_DONTWAIT);
      if (received > 0) return static_cast<std::size_t>(received);
      if (received == 0) return std::nullopt;
      if (errno == EAGAIN || errno == EWOULDBLOCK) return 0;
      if (errno != EINTR) return std::nullopt;
    }
  }

 private:
  std::array<iovec, 2 * kMessagesPerReceive> buffers_{};
  std::size_t count_ = 0;
  std::size_t skip_;
};

bool is_keepalive(const DataFrameHeader& header) { return header.magic == DataFrameHeader::kKeepaliveMagic; }

void check_header(const DataFrameHeader& header, const PostedMessage& expected, const std::string& peer_name) {
  if (header.magic != DataFrameHeader::kMagic && !is_keepalive(header)) {
    throw Internal(peer_name + " sent bytes that are no message where (" +
                   describe_message(expected.tag, expected.size()) + ") was expected");
  }
  if (header.sender != static_cast<std::uint32_t>(expected.peer)) {
    throw Internal(peer_name + " says that it is rank " + std::to_string(header.sender));
  }
  if (is_keepalive(header)) return;
  if (header.tag() != expected.tag || header.length != expected.size()) {
    throw Internal(describe_mismatch(expected, peer_name, header.tag(), header.length));
  }
}

// The messages of one connection in one direction, in order.
class MessageQueue {
 public:
  bool empty() const { return queue_.empty(); }
  // The next message; the queue must not be empty, nor begin with a keepalive.
  const PostedMessage& front() const { return *queue_.front().operation; }
  void clear() { queue_.clear(); }
  // Bytes of messages sent or received so far.
  std::uint64_t moved() const { return moved_; }

 protected:
  struct Entry {
    DataFrameHeader header;
    PostedMessage* operation;  // null for a keepalive
    std::size_t size() const { return sizeof header + (operation != nullptr ? operation->size() : 0); }
  };

  void finish_front() {
    if (PostedMessage* operation = queue_.front().operation) operation->done = true;
    queue_.pop_front();
  }

  std::deque<Entry> queue_;
  std::uint64_t moved_ = 0;
  std::size_t front_moved_ = 0;  // bytes of the front message, header included
};

class SendQueue final : public MessageQueue {
 public:
  void push(PostedMessage& operation, int this_rank) {
    const DataFrameHeader header{.sender = static_cast<std::uint32_t>(this_rank),
                                 .process_set = operation.tag.process_set,
                                 .step = operation.tag.step,
                                 .sequence = operation.tag.sequence,
                                 .length = operation.size()};
    queue_.push_back({.header = header, .operation = &operation});
  }

  void push_keepalive(int this_rank) {
    const DataFrameHeader header{.magic = DataFrameHeader::kKeepaliveMagic,
                                 .sender = static_cast<std::uint32_t>(this_rank)};
    queue_.push_back({.header = header, .operation = nullptr});
  }
  void drop_keepalives() {
    while (!queue_.empty() && queue_.front().operation == nullptr) queue_.pop_front();
  }

  // Passes to the kernel what it accepts without blocking, several messages with one call, and marks completely sent
  // messages as done. The queue must not be empty. Returns false if the peer has closed or reset the connection.
  bool advance(Socket& socket) {
    std::array<std::span<const std::byte>, 2 * kMessagesPerSend> buffers;
    const std::size_t count = gather(buffers);
    const auto sent = socket.send_some(std::span<const std::span<const std::byte>>(buffers).first(count));
    if (sent) consume(*sent);
    return sent.has_value();
  }

 private:
  std::size_t gather(std::span<std::span<const std::byte>> buffers) const {
    std::size_t count = 0;
    std::size_t skip = front_moved_;
    const auto append = [&](std::span<const std::byte> bytes) {
      const std::size_t skipped = std::min(skip, bytes.size());
      skip -= skipped;
      if (skipped < bytes.size()) buffers[count++] = bytes.subspan(skipped);
    };
    for (const Entry& message : queue_) {
      if (count + 2 > buffers.size()) break;
      append(std::as_bytes(std::span(&message.header, 1)));
      if (message.operation != nullptr) append(message.operation->outgoing);
    }
    return count;
  }

  void consume(std::size_t bytes) {
    moved_ += bytes;
    front_moved_ += bytes;
    while (!queue_.empty() && front_moved_ >= queue_.front().size()) {
      front_moved_ -= queue_.front().size();
      if (queue_.front().operation == nullptr) moved_ -= queue_.front().size();
      finish_front();
    }
  }
};

// The lengths of the posted receives determine the destination of each byte, so several messages are read with one
// system call, headers and payloads directly into place. Each header is compared with the posted receive as soon as it
// is complete; a peer that sends something else can write wrong bytes into posted memory, but not outside it.
class ReceiveQueue final : public MessageQueue {
 public:
  void push(PostedMessage& operation) { queue_.push_back({.header = {}, .operation = &operation}); }
  // The number of keepalives received so far.
  std::uint64_t keepalives() const { return keepalives_; }

  // Reads what has arrived without blocking, with one call, and marks complete operations as done. The queue must not
  // be empty. Returns false if the peer has closed or reset the connection. Throws Internal on a wrong header.
  bool advance(const Socket& socket, const std::string& peer_name) {
    ScatterList places(front_moved_);
    for (Entry& message : queue_) {
      if (!places.has_room_for_message()) break;
      places.append(std::as_writable_bytes(std::span(&message.header, 1)));
      places.append(message.operation->incoming);
    }
    const auto received = places.receive(socket.fd());
    if (received) consume(*received, peer_name);
    return received.has_value();
  }

 private:
  void consume(std::size_t bytes, const std::string& peer_name) {
    moved_ += bytes;
    while (bytes > 0) {
      const Entry& message = queue_.front();
      const std::size_t before = front_moved_;
      const std::size_t taken = std::min(bytes, message.size() - before);
      bytes -= taken;
      front_moved_ += taken;
      if (before < sizeof message.header && front_moved_ >= sizeof message.header) {
        check_header(message.header, *message.operation, peer_name);
        if (is_keepalive(message.header)) {
          bytes += front_moved_ - sizeof message.header;
          moved_ -= sizeof message.header;
          ++keepalives_;
          move_up(bytes);
          front_moved_ = 0;
          continue;
        }
      }
      if (front_moved_ < message.size()) return;
      finish_front();
      front_moved_ = 0;
    }
  }

  // Called when a keepalive was read into the header of the front message: moves the `bytes` behind the keepalive to
  // where the front message begins.
  void move_up(std::size_t bytes) {
    std::vector<std::span<std::byte>> places;
    for (Entry& message : queue_) {
      places.push_back(std::as_writable_bytes(std::span(&message.header, 1)));
      places.push_back(message.operation->incoming);
    }
    std::vector<std::byte> followed;
    for (const std::span<std::byte> place : std::span(places).subspan(1)) {
      const auto part = place.first(std::min(place.size(), bytes - followed.size()));
      followed.insert(followed.end(), part.begin(), part.end());
    }
    auto from = followed.begin();
    for (const std::span<std::byte> place : places) {
      const auto count = std::min(place.size(), static_cast<std::size_t>(followed.end() - from));
      std::copy_n(from, count, place.begin());
      from += static_cast<std::ptrdiff_t>(count);
    }
  }

  std::uint64_t keepalives_ = 0;
};

class TcpTransport final : public Transport {
 public:
  TcpTransport(const MeshSetup& setup, WaitPolicy policy, const AbortFlag& abort, Duration inactivity_timeout)
      : rank_(setup.topology.rank),
        size_(setup.topology.size),
        policy_(policy),
        abort_(abort),
        inactivity_timeout_(inactivity_timeout) {
    for (auto& [rank, sockets] : connect_mesh(setup)) {
      auto peer = std::make_unique<Peer>(setup.topology.describe(rank));
      for (Socket& socket : sockets) {
        peer->connections.push_back(std::make_unique<Connection>(peer->name, std::move(socket)));
      }
      peers_.emplace(rank, std::move(peer));
    }
  }

  ~TcpTransport() override {
    if (failed_) return;
    try {
      flush_sends();
    } catch (const Error&) {
      // No caller is left to whom it could be reported.
    }
    discard_keepalives();
  }

  TcpTransport(const TcpTransport&) = delete;
  TcpTransport& operator=(const TcpTransport&) = delete;

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  RequestId post_send(int peer, Tag tag, std::span<const std::byte> bytes) override {
    Peer& receiver = peer_of(peer);
    Connection& connection = receiver.of_next(receiver.sends);
    PostedMessage& operation =
        operations_.add({.kind = PostedMessage::Kind::send, .peer = peer, .tag = tag, .outgoing = bytes});
    const bool first = connection.sends.empty();
    connection.sends.push(operation, rank_);
    activate(connection);
    if (first) {
      try {
        advance_sends(connection);
      } catch (...) {
        fail();
      }
    }
    return operations_.newest();
  }

  RequestId post_receive(int peer, Tag tag, std::span<std::byte> bytes) override {
    Peer& sender = peer_of(peer);
    Connection& connection = sender.of_next(sender.receives);
    connection.receives.push(
        operations_.add({.kind = PostedMessage::Kind::receive, .peer = peer, .tag = tag, .incoming = bytes}));
    activate(connection);
    return operations_.newest();
  }

  void wait(RequestId request, Deadline deadline) override {
    if (failed_) throw Internal("the transport is used after it failed");
    PostedMessage& operation = operations_.find(request);
    const TimePoint started = Clock::now();
    try {
      if (!await_completion(operation, deadline, credit_, inactivity_timeout_)) {
        throw Timeout(describe_timeout(operation, peer_of(operation.peer).name, Clock::now() - started));
      }
    } catch (...) {
      fail();
    }
    operations_.retire(operation);
  }

  bool wait_until(RequestId request, TimePoint until) override {
    if (failed_) throw Internal("the transport is used after it failed");
    PostedMessage& operation = operations_.find(request);
    try {
      if (!await_completion(operation, until, arrival_credit_)) return false;
    } catch (...) {
      fail();
    }
    operations_.retire(operation);
    return true;
  }

 private:
  struct Connection {
    Connection(const std::string& name, Socket its_socket) : peer_name(name), socket(std::move(its_socket)) {}

    const std::string& peer_name;
    Socket socket;
    SendQueue sends;
    ReceiveQueue receives;
    bool active = false;

    bool idle() const { return sends.empty() && receives.empty(); }
  };

  struct Peer {
    explicit Peer(std::string its_name) : name(std::move(its_name)) {}

    const std::string name;
    std::vector<std::unique_ptr<Connection>> connections;
    std::size_t sends = 0, receives = 0;  // posted so far

    Connection& of_next(std::size_t& posted) { return *connections[posted++ % connections.size()]; }

    // Bytes so far, in both directions.
    std::uint64_t moved() const {
      std::uint64_t sum = 0;
      for (const auto& connection : connections) sum += connection->sends.moved() + connection->receives.moved();
      return sum;
    }
    std::uint64_t keepalives() const {
      std::uint64_t sum = 0;
      for (const auto& connection : connections) sum += connection->receives.keepalives();
      return sum;
    }
  };

  // Tracks since when a count has not changed.
  struct InactivityClock {
    bool has_moved(std::uint64_t to, TimePoint now) {
      if (count == to) return false;
      count = to;
      since = now;
      return true;
    }

    std::optional<std::uint64_t> count;
    TimePoint since{};
  };

  Peer& peer_of(int rank) {
    if (failed_) throw Internal("the transport is used after it failed");
    const auto found = peers_.find(rank);
    if (found == peers_.end()) {
      throw InvalidArgument("rank " + std::to_string(rank_) + " has no connection to rank " + std::to_string(rank));
    }
    return *found->second;
  }

  void activate(Connection& connection) {
    if (!std::exchange(connection.active, true)) active_.push_back(&connection);
  }

  // Makes progress on every active connection.
  void progress() {
    for (std::size_t i = 0; i < active_.size();) {
      Connection& connection = *active_[i];
      advance_sends(connection);
      advance_receives(connection);
      if (connection.idle()) {
        connection.active = false;
        active_[i] = active_.back();
        active_.pop_back();
      } else {
        ++i;
      }
    }
  }

  void advance_sends(Connection& connection) {
    if (connection.sends.empty() || connection.sends.advance(connection.socket)) return;
    connection.sends.drop_keepalives();  // a peer that has done its part and left needs none
    if (!connection.sends.empty()) throw PeerLost(describe_loss(connection.sends.front(), connection.peer_name));
  }

  void advance_receives(Connection& connection) {
    if (connection.receives.empty() || connection.receives.advance(connection.socket, connection.peer_name)) return;
    throw PeerLost(describe_loss(connection.receives.front(), connection.peer_name));
  }

  // Returns whether the operation is complete; false only after `until`.
  bool await_completion(const PostedMessage& operation, TimePoint until, SpinCredit& credit,
                        Duration inactivity_timeout = {}) {
    if (operation.done) return true;
    if (credit.worth_spinning()) {
      credit.spun(spin(operation));
      if (operation.done) return true;
    }
    progress();
    const Peer& peer = peer_of(operation.peer);
    InactivityClock messages, signs;  // signs of life: messages and keepalives
    bool keepalive_sent = false;
    while (!operation.done) {
      abort_.check();
      const TimePoint now = Clock::now();
      if (messages.has_moved(peer.moved(), now)) keepalive_sent = false;
      signs.has_moved(peer.moved() + peer.keepalives(), now);
      if (now >= until && now >= signs.since + inactivity_timeout) return false;
      if (inactivity_timeout > Duration::zero() && !keepalive_sent && now >= messages.since + inactivity_timeout / 2) {
        keepalive_sent = true;
        send_keepalives();
      }
      poll_active(std::min(now < until ? until : now + inactivity_timeout, now + kAbortPollInterval));
      progress();
    }
    return true;
  }

  void send_keepalives() {
    for (const auto& [rank, peer] : peers_) {
      for (const auto& connection : peer->connections) {
        connection->sends.push_keepalive(rank_);
        activate(*connection);
      }
    }
  }

  // Polls for as long as the policy allows; returns whether the operation is complete. Reads only from the awaited
  // peer; messages of others are read when they are waited for.
  bool spin(const PostedMessage& operation) {
    const Peer& awaited = peer_of(operation.peer);
    const TimePoint end = Clock::now() + policy_.spin;
    for (int polls = 0; polls <= policy_.yields || Clock::now() < end; ++polls) {
      if (polls > 0) sched_yield();
      for (Connection* connection : active_) advance_sends(*connection);
      for (const auto& connection : awaited.connections) advance_receives(*connection);
      if (operation.done) break;
    }
    return operation.done;
  }

  // Sleeps until an active connection is ready, at most until `until`.
  void poll_active(TimePoint until) {
    std::vector<pollfd> polled;
    polled.reserve(active_.size());
    for (const Connection* connection : active_) {
      const int events = (connection->sends.empty() ? 0 : POLLOUT) | (connection->receives.empty() ? 0 : POLLIN);
      polled.push_back({.fd = connection->socket.fd(), .events = static_cast<short>(events), .revents = 0});
    }
    poll(polled.data(), polled.size(), poll_timeout(until));
  }

  void flush_sends() {
    const Deadline deadline = deadline_after(kTransportFlushTime);
    for (Connection* connection : active_) connection->receives.clear();
    for (;;) {
      // Removes connections that are done. A peer whose connection is lost waits for no message any more.
      std::erase_if(active_, [](Connection* connection) {
        return connection->sends.empty() || !connection->sends.advance(connection->socket) || connection->sends.empty();
      });
      const TimePoint now = Clock::now();
      if (active_.empty() || abort_.raised() || now >= deadline) return;
      poll_active(std::min(deadline, now + kAbortPollInterval));
    }
  }

  // Closing a connection with unread bytes resets it, and the peer loses what was sent to it last. Reads only what has
  // arrived by now: a peer that is still sending must learn that its message is not received.
  void discard_keepalives() {
    std::array<std::byte, 64 * sizeof(DataFrameHeader)> bytes;
    for (const auto& [rank, peer] : peers_) {
      for (const auto& connection : peer->connections) {
        int left = 0;
        if (ioctl(connection->socket.fd(), FIONREAD, &left) != 0) continue;
        while (left > 0) {
          const auto size = std::min(bytes.size(), static_cast<std::size_t>(left));
          const auto received = recv(connection->socket.fd(), bytes.data(), size, MSG_DONTWAIT);
          if (received <= 0) break;
          left -= static_cast<int>(received);
        }
      }
    }
  }

  // Handles a failed call: forgets all posted operations, since their memory belongs to the caller again, and throws
  // the abort flag's reason if it is raised (it explains why the peer left), otherwise the current exception.
  [[noreturn]] void fail() {
    failed_ = true;
    active_.clear();
    for (const auto& [rank, peer] : peers_) {
      for (const auto& connection : peer->connections) {
        connection->sends.clear();
        connection->receives.clear();
      }
    }
    abort_.check();
    throw;
  }

  const int rank_;
  const int size_;
  const WaitPolicy policy_;
  const AbortFlag& abort_;
  const Duration inactivity_timeout_;
  std::map<int, std::unique_ptr<Peer>> peers_;  // by global rank
  std::vector<Connection*> active_;             // those with posted operations, or keepalives to send
  OperationWindow operations_;
  SpinCredit credit_;          // of wait()
  SpinCredit arrival_credit_;  // of wait_until(): for peers that may be busy with something else
  bool failed_ = false;
};

}  // namespace

Tag DataFrameHeader::tag() const { return {.process_set = process_set, .step = step, .sequence = sequence}; }

std::unique_ptr<Transport> make_tcp_transport(const MeshSetup& setup, WaitPolicy policy, const AbortFlag& abort,
                                              Duration inactivity_timeout) {
  return std::make_unique<TcpTransport>(setup, policy, abort, inactivity_timeout);
}

}  // namespace hvd
