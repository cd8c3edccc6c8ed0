#include "ops/transport/tcp/tcp_transport.h"

#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "core/base/error.h"
#include "ops/transport/tcp/receive_queue.h"
#include "ops/transport/tcp/send_queue.h"

namespace hvd {

struct TcpTransport::Connection {
  Connection(const std::string& name, Socket its_socket) : peer_name(name), socket(std::move(its_socket)) {}

  const std::string& peer_name;
  Socket socket;
  SendQueue sends;
  ReceiveQueue receives;
  bool active = false;

  bool idle() const { return sends.empty() && receives.empty(); }
};

struct TcpTransport::Peer {
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
};

TcpTransport::TcpTransport(const MeshSetup& setup, WaitPolicy policy, const AbortFlag& abort, Duration silence)
    : rank_(setup.rank),
      size_(static_cast<int>(setup.ranks.size())),
      policy_(policy),
      abort_(abort),
      silence_(silence) {
  for (auto& [rank, sockets] : connect_mesh(setup)) {
    auto peer = std::make_unique<Peer>(setup.describe(rank));
    for (Socket& socket : sockets) {
      peer->connections.push_back(std::make_unique<Connection>(peer->name, std::move(socket)));
    }
    peers_.emplace(rank, std::move(peer));
  }
}

TcpTransport::~TcpTransport() {
  if (failed_) return;
  try {
    flush_sends();
  } catch (const Error&) {
    // An error that sending does not explain; no caller is left to report it to.
  }
}

Transport::RequestId TcpTransport::post_send(int peer, Tag tag, std::span<const std::byte> bytes) {
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

Transport::RequestId TcpTransport::post_receive(int peer, Tag tag, std::span<std::byte> bytes) {
  Peer& sender = peer_of(peer);
  Connection& connection = sender.of_next(sender.receives);
  connection.receives.push(
      operations_.add({.kind = PostedMessage::Kind::receive, .peer = peer, .tag = tag, .incoming = bytes}));
  activate(connection);
  return operations_.newest();
}

TcpTransport::Peer& TcpTransport::peer_of(int rank) {
  if (failed_) throw Internal("the transport is used after it failed");
  const auto found = peers_.find(rank);
  if (found == peers_.end()) {
    throw InvalidArgument("rank " + std::to_string(rank_) + " has no connection to rank " + std::to_string(rank));
  }
  return *found->second;
}

void TcpTransport::activate(Connection& connection) {
  if (!std::exchange(connection.active, true)) active_.push_back(&connection);
}

void TcpTransport::wait(RequestId request, Deadline deadline) {
  if (failed_) throw Internal("the transport is used after it failed");
  PostedMessage& operation = operations_.find(request);
  const TimePoint started = Clock::now();
  try {
    if (!await_completion(operation, deadline, credit_, silence_)) {
      throw Timeout(describe_timeout(operation, peer_of(operation.peer).name, Clock::now() - started));
    }
  } catch (...) {
    fail();
  }
  operations_.retire(operation);
}

bool TcpTransport::wait_until(RequestId request, TimePoint until) {
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

bool TcpTransport::await_completion(const PostedMessage& operation, TimePoint until, SpinCredit& credit,
                                    Duration silence) {
  if (operation.done) return true;
  if (credit.worth_spinning()) {
    credit.spun(look_busily(operation));
    if (operation.done) return true;
  }
  progress();
  const Peer& peer = peer_of(operation.peer);
  std::optional<std::uint64_t> moved;
  TimePoint moved_at{};
  while (!operation.done) {
    abort_.check();
    const TimePoint now = Clock::now();
    if (silence > Duration::zero() && moved != peer.moved()) {
      moved = peer.moved();
      moved_at = now;
    }
    const bool silent = moved ? now >= moved_at + silence : true;
    if (now >= until && silent) return false;
    poll_active(std::min(now < until ? until : now + silence, now + kAbortPollInterval));
    progress();
  }
  return true;
}

// Reads only from the awaited peer; messages of others are read when they are waited for.
bool TcpTransport::look_busily(const PostedMessage& operation) {
  const Peer& awaited = peer_of(operation.peer);
  const TimePoint end = Clock::now() + policy_.spin;
  for (int looks = 0; looks <= policy_.yields || Clock::now() < end; ++looks) {
    if (looks > 0) sched_yield();
    for (Connection* connection : active_) advance_sends(*connection);
    for (const auto& connection : awaited.connections) advance_receives(*connection);
    if (operation.done) break;
  }
  return operation.done;
}

void TcpTransport::progress() {
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

void TcpTransport::advance_sends(Connection& connection) {
  if (connection.sends.empty() || connection.sends.advance(connection.socket)) return;
  throw PeerLost(describe_loss(connection.sends.front(), connection.peer_name));
}

void TcpTransport::advance_receives(Connection& connection) {
  if (connection.receives.empty() || connection.receives.advance(connection.socket, connection.peer_name)) return;
  throw PeerLost(describe_loss(connection.receives.front(), connection.peer_name));
}

void TcpTransport::poll_active(TimePoint until) {
  std::vector<pollfd> polled;
  polled.reserve(active_.size());
  for (const Connection* connection : active_) {
    const int events = (connection->sends.empty() ? 0 : POLLOUT) | (connection->receives.empty() ? 0 : POLLIN);
    polled.push_back({.fd = connection->socket.fd(), .events = static_cast<short>(events), .revents = 0});
  }
  poll(polled.data(), polled.size(), poll_timeout(until));
}

void TcpTransport::flush_sends() {
  const Deadline deadline = deadline_after(kTransportFlushTime);
  for (Connection* connection : active_) connection->receives.clear();
  for (;;) {
    // A lost peer waits for nothing.
    std::erase_if(active_, [](Connection* connection) {
      return connection->sends.empty() || !connection->sends.advance(connection->socket) || connection->sends.empty();
    });
    const TimePoint now = Clock::now();
    if (active_.empty() || abort_.raised() || now >= deadline) return;
    poll_active(std::min(deadline, now + kAbortPollInterval));
  }
}

void TcpTransport::fail() {
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

}  // namespace hvd
