#include "tests/support/local_transport.h"

#include <algorithm>
#include <string>

#include "core/base/error.h"

namespace hvd {

namespace {

// As Topology::describe() names the ranks of run_transport_ranks().
std::string name_of(int rank) { return "rank " + std::to_string(rank) + " on host (pid 0)"; }

}  // namespace

LocalNetwork::LocalNetwork(int size) : size_(size) {
  for (int pair = 0; pair < size * size; ++pair) channels_.push_back(std::make_unique<Channel>());
}

void LocalNetwork::Channel::match() {
  bool delivered = false;
  while (!sends.empty() && !receives.empty()) {
    PostedMessage& send = *sends.front();
    PostedMessage& receive = *receives.front();
    if (send.tag != receive.tag || send.size() != receive.size()) break;
    std::copy(send.outgoing.begin(), send.outgoing.end(), receive.incoming.begin());
    send.done = receive.done = true;
    sends.pop_front();
    receives.pop_front();
    delivered = true;
  }
  if (delivered || (!sends.empty() && !receives.empty())) changed.notify_all();
}

LocalTransport::LocalTransport(LocalNetwork& network, int rank, const AbortFlag& abort)
    : network_(network), rank_(rank), abort_(abort) {}

LocalTransport::~LocalTransport() {
  if (left_) return;
  flush_sends();
  leave();
}

Transport::RequestId LocalTransport::post_send(int peer, Tag tag, std::span<const std::byte> bytes) {
  return post({.kind = PostedMessage::Kind::send, .peer = peer, .tag = tag, .outgoing = bytes});
}

Transport::RequestId LocalTransport::post_receive(int peer, Tag tag, std::span<std::byte> bytes) {
  return post({.kind = PostedMessage::Kind::receive, .peer = peer, .tag = tag, .incoming = bytes});
}

Transport::RequestId LocalTransport::post(PostedMessage operation) {
  if (left_) throw Internal("the transport is used after it failed");
  if (operation.peer < 0 || operation.peer >= size() || operation.peer == rank_) {
    throw InvalidArgument(name_of(rank_) + " has no connection to " + name_of(operation.peer));
  }
  PostedMessage& posted = operations_.add(operation);
  LocalNetwork::Channel& channel = channel_of(posted);
  const std::lock_guard lock(channel.mutex);
  (posted.kind == PostedMessage::Kind::send ? channel.sends : channel.receives).push_back(&posted);
  channel.match();
  return operations_.newest();
}

LocalNetwork::Channel& LocalTransport::channel_of(const PostedMessage& operation) {
  return operation.kind == PostedMessage::Kind::send ? network_.channel(rank_, operation.peer)
                                                     : network_.channel(operation.peer, rank_);
}

void LocalTransport::wait(RequestId request, Deadline deadline) {
  if (left_) throw Internal("the transport is used after it failed");
  PostedMessage& operation = operations_.find(request);
  const TimePoint started = Clock::now();
  try {
    if (!await_completion(operation, deadline)) {
      throw Timeout(describe_timeout(operation, name_of(operation.peer), Clock::now() - started));
    }
  } catch (...) {
    fail();
  }
  operations_.retire(operation);
}

bool LocalTransport::wait_until(RequestId request, TimePoint until) {
  if (left_) throw Internal("the transport is used after it failed");
  PostedMessage& operation = operations_.find(request);
  try {
    if (!await_completion(operation, until)) return false;
  } catch (...) {
    fail();
  }
  operations_.retire(operation);
  return true;
}

void LocalTransport::fail() {
  leave();
  // The reason of the abort is more informative than the connection that broke because of it.
  abort_.check();
  throw;
}

bool LocalTransport::await_completion(const PostedMessage& operation, TimePoint until) {
  LocalNetwork::Channel& channel = channel_of(operation);
  const bool sending = operation.kind == PostedMessage::Kind::send;
  std::unique_lock lock(channel.mutex);
  while (!operation.done) {
    abort_.check();
    if (!sending && !channel.sends.empty()) {
      const PostedMessage& sent = *channel.sends.front();
      throw Internal(describe_mismatch(*channel.receives.front(), name_of(operation.peer), sent.tag, sent.size()));
    }
    if (sending ? channel.receiver_gone : channel.sender_gone) {
      throw PeerLost(describe_loss(operation, name_of(operation.peer)));
    }
    const TimePoint now = Clock::now();
    if (now >= until) return false;
    channel.changed.wait_until(lock, std::min(until, now + kAbortPollInterval));
  }
  return true;
}

void LocalTransport::flush_sends() {
  const Deadline deadline = deadline_after(kTransportFlushTime);
  for (int peer = 0; peer < size(); ++peer) {
    LocalNetwork::Channel& channel = network_.channel(rank_, peer);
    std::unique_lock lock(channel.mutex);
    while (!channel.sends.empty() && !channel.receiver_gone && !abort_.raised() && Clock::now() < deadline) {
      channel.changed.wait_until(lock, std::min(deadline, Clock::now() + kAbortPollInterval));
    }
  }
}

void LocalTransport::leave() {
  left_ = true;
  for (int peer = 0; peer < size(); ++peer) {
    {
      LocalNetwork::Channel& outgoing = network_.channel(rank_, peer);
      const std::lock_guard lock(outgoing.mutex);
      outgoing.sends.clear();
      outgoing.sender_gone = true;
      outgoing.changed.notify_all();
    }
    LocalNetwork::Channel& incoming = network_.channel(peer, rank_);
    const std::lock_guard lock(incoming.mutex);
    incoming.receives.clear();
    incoming.receiver_gone = true;
    incoming.changed.notify_all();
  }
}

}  // namespace hvd
