// A connection that is being established, with proof at both ends of the job's key (core/net/authentication.h).
// Advances as bytes arrive, so that a slow peer delays no other. Used on the channel's thread.
#pragma once

#include <array>
#include <cstddef>

#include "core/net/authentication.h"
#include "core/net/socket.h"

namespace hvd {

class ConnectionAttempt {
 public:
  // Throws PeerLost if the address refuses the connection.
  ConnectionAttempt(const Address& address, const JobKey& key, int this_rank);

  int fd() const { return socket_.fd(); }

  // Advances without blocking; returns true when both ends are authenticated. Throws PeerLost.
  bool advance();
  Socket take() { return std::move(socket_); }

 private:
  enum class Step { connecting, awaiting_challenge, awaiting_reply };

  // Returns false if some bytes have not arrived yet.
  bool read(std::span<std::byte> bytes);

  const std::string where_;
  ClientHandshake handshake_;
  Socket socket_;
  Step step_ = Step::connecting;
  std::size_t received_ = 0;
  Challenge challenge_;
  Reply reply_;
};

}  // namespace hvd
