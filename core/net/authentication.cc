#include "core/net/authentication.h"

#include "core/base/error.h"
#include "core/net/handshake.h"
#include "core/net/random_bytes.h"

namespace hvd {

namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  throw InvalidArgument("the job's key has a character that is not a hexadecimal digit");
}

}  // namespace

JobKey JobKey::random() {
  JobKey key;
  fill_random(std::as_writable_bytes(std::span(key.bytes_)));
  return key;
}

JobKey JobKey::from_hex(std::string_view hex) {
  if (hex.size() != 2 * kBytes) {
    throw InvalidArgument("the job's key has " + std::to_string(hex.size()) + " characters, expected " +
                          std::to_string(2 * kBytes) + " hexadecimal digits");
  }
  JobKey key;
  for (std::size_t i = 0; i < kBytes; ++i) {
    key.bytes_[i] = static_cast<unsigned char>(hex_digit(hex[2 * i]) << 4 | hex_digit(hex[2 * i + 1]));
  }
  return key;
}

std::string JobKey::to_hex() const { return hvd::to_hex(std::as_bytes(std::span(bytes_))); }

const char* purpose_name(Purpose purpose) {
  switch (purpose) {
    case Purpose::store: return "store";
    case Purpose::control: return "control";
    case Purpose::data: return "data";
    case Purpose::shared_memory: return "shared memory";
    case Purpose::messages: return "messages";
  }
  return "unknown";
}

namespace {

void prove(Socket& socket, ClientHandshake handshake, const std::string& where, Deadline deadline) {
  Challenge challenge;
  socket.receive_all(challenge, deadline, where);
  try {
    const Proof proof = handshake.prove(challenge);
    socket.send_all(proof, deadline, where);
    Reply reply;
    socket.receive_all(reply, deadline, where);
    handshake.check(reply);
  } catch (const PeerLost& error) {
    // A server does not tell a client why it rejects it.
    throw PeerLost(
        "not accepted by " + where +
        " (it is another job's, or has no room for one more connection; its own output says which): " + error.what());
  }
}

}  // namespace

Socket connect_authenticated(const Address& address, const JobKey& key, Purpose purpose, int this_rank,
                             Deadline deadline, const Alarm& alarm) {
  const std::string where = std::string("the ") + purpose_name(purpose) + " port at " + address.to_string();
  for (Deadline connected = deadline;; connected = std::min(deadline, deadline_after(kProofTime))) {
    const TimePoint began = Clock::now();
    Socket socket = Socket::connect(address, connected, alarm);
    try {
      prove(socket, ClientHandshake(key, purpose, this_rank, fresh_nonce()), where, deadline);
      return socket;
    } catch (const PeerLost&) {
      if (Clock::now() - began < kProofTime) throw;
    }
  }
}

}  // namespace hvd
