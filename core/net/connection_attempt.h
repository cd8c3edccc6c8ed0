// Establishes a connection in an event loop, without waiting.
#pragma once

#include <cerrno>
#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/net/authentication.h"
#include "core/net/endpoint.h"
#include "core/net/socket.h"

namespace hvd {

// A connection that is being established, with proof at both ends of the job's key (core/net/authentication.h).
// Advances as bytes arrive, so that a slow peer delays no other.
class ConnectionAttempt {
 public:
  // Throws PeerLost if the address refuses the connection.
  ConnectionAttempt(const Address& address, const JobKey& key, Purpose purpose, int this_rank)
      : where_("the " + std::string(purpose_name(purpose)) + " port at " + address.to_string()),
        handshake_(key, purpose, this_rank, fresh_nonce()) {
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

  int fd() const { return socket_.fd(); }
  // Whether it becomes writable, and not readable, when there is something to advance.
  bool is_connecting() const { return step_ == Step::connecting; }

  // Advances without blocking; returns true when both ends are authenticated. Throws PeerLost.
  bool advance() {
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

  Socket take() { return std::move(socket_); }

 private:
  enum class Step { connecting, awaiting_challenge, awaiting_reply };

  // Returns false if some bytes have not arrived yet.
  bool read(std::span<std::byte> bytes) {
    const auto count = socket_.receive_some(bytes.subspan(received_));
    if (!count) throw PeerLost(where_ + " closed the connection");
    received_ += *count;
    if (received_ < bytes.size()) return false;
    received_ = 0;
    return true;
  }

  const std::string where_;
  ClientHandshake handshake_;
  Socket socket_;
  Step step_ = Step::connecting;
  std::size_t received_ = 0;
  Challenge challenge_;
  Reply reply_;
};

}  // namespace hvd
