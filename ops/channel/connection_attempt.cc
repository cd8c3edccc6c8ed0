#include "ops/channel/connection_attempt.h"

#include <cerrno>

#include "core/base/error.h"
#include "core/net/endpoint.h"

namespace hvd {

ConnectionAttempt::ConnectionAttempt(const Address& address, const JobKey& key, int this_rank)
    : where_("the messages port at " + address.to_string()),
      handshake_(key, Purpose::messages, this_rank, fresh_nonce()) {
  std::string cause = "there is no such address";
  for (const Endpoint& endpoint : resolve(address, false, cause)) {
    FileDescriptor fd;
    const int failure = begin_connect(endpoint, fd);
    if (failure == 0 || failure == EINPROGRESS) {
      socket_ = Socket(std::move(fd));
      return;
    }
    cause = error_text(failure);
  }
  throw PeerLost("cannot connect to " + where_ + ": " + cause);
}

bool ConnectionAttempt::read(std::span<std::byte> bytes) {
  const auto count = socket_.receive_some(bytes.subspan(received_));
  if (!count) throw PeerLost(where_ + " closed the connection");
  received_ += *count;
  if (received_ < bytes.size()) return false;
  received_ = 0;
  return true;
}

bool ConnectionAttempt::advance() {
  if (step_ == Step::connecting) {
    if (!wait_ready(socket_.fd(), true, Clock::now())) return false;
    if (const int failure = end_connect(socket_.fd()); failure != 0) {
      throw PeerLost("cannot connect to " + where_ + ": " + error_text(failure));
    }
    step_ = Step::awaiting_challenge;
  }
  if (step_ == Step::awaiting_challenge) {
    if (!read(challenge_)) return false;
    // A new connection has buffer space for these few bytes.
    if (socket_.send_some(handshake_.prove(challenge_)) != kProofBytes) throw PeerLost(where_ + " takes nothing");
    step_ = Step::awaiting_reply;
  }
  if (!read(reply_)) return false;
  handshake_.check(reply_);
  return true;
}

}  // namespace hvd
