// A connection that is being made and proves that both ends know the job's key (core/net/handshake.h), step by step as
// bytes come, so that a peer which is slow to answer holds nobody up. The channel's thread.
#pragma once

#include <array>
#include <cstddef>

#include "core/net/handshake.h"
#include "core/net/socket.h"

namespace hvd {

class ConnectionAttempt {
 public:
  // Throws PeerLost if there is nobody.
  ConnectionAttempt(const Address& address, const JobKey& key, int this_rank);

  int fd() const { return socket_.fd(); }

  // As far as it goes now; true when both have proved themselves. Throws PeerLost.
  bool advance();
  Socket take() { return std::move(socket_); }

 private:
  enum class Step { connecting, awaiting_challenge, awaiting_reply };

  // False: not all of it is there yet.
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
