#include "ops/channel/knock.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

#include "core/base/error.h"
#include "core/base/error_text.h"
#include "core/net/endpoint.h"

namespace hvd {

Knock::Knock(const Address& address, const JobKey& key, int own_rank)
    : where_("the messages port at " + address.to_string()),
      handshake_(key, Purpose::messages, own_rank, fresh_nonce()) {
  std::string cause = "there is no such address";
  for (const Endpoint& endpoint : resolve(address, false, cause)) {
    FileDescriptor fd = open_stream_socket(endpoint.storage.ss_family);
    if (!fd) continue;
    tune_stream_socket(fd.get(), endpoint.storage.ss_family);
    if (::connect(fd.get(), endpoint.address(), endpoint.length) != 0 && errno != EINPROGRESS) {
      cause = error_text(errno);
      continue;
    }
    socket_ = Socket(std::move(fd));
    return;
  }
  throw PeerLost("cannot connect to " + where_ + ": " + cause);
}

bool Knock::read(std::span<std::byte> bytes) {
  const auto count = socket_.receive_some(bytes.subspan(received_));
  if (!count) throw PeerLost(where_ + " closed the connection");
  received_ += *count;
  if (received_ < bytes.size()) return false;
  received_ = 0;
  return true;
}

bool Knock::advance() {
  if (step_ == Step::connecting) {
    if (!wait_ready(socket_.fd(), true, Clock::now())) return false;
    int failure = 0;
    socklen_t length = sizeof failure;
    if (getsockopt(socket_.fd(), SOL_SOCKET, SO_ERROR, &failure, &length) != 0) failure = errno;
    if (failure != 0) throw PeerLost("cannot connect to " + where_ + ": " + error_text(failure));
    step_ = Step::awaiting_challenge;
  }
  if (step_ == Step::awaiting_challenge) {
    if (!read(challenge_)) return false;
    // A fresh connection has room for these few bytes.
    if (socket_.send_some(handshake_.prove(challenge_)) != kProofBytes) throw PeerLost(where_ + " takes nothing");
    step_ = Step::awaiting_reply;
  }
  if (!read(reply_)) return false;
  handshake_.check(reply_);
  return true;
}

}  // namespace hvd
