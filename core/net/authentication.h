// Mutual authentication: both ends of a connection prove that they know the job's key before anything else is read.
//
// Three messages of fixed size: the server's challenge; the client's challenge, its purpose and rank and a keyed hash
// over both challenges; the server's keyed hash over both. The key itself is never transmitted. The hash covers purpose
// and rank, so that a proof for one port is invalid at another. After that the connection is not protected: an attacker
// who can inject into an established TCP connection can disturb the job (docs/security.md). The hash is libsodium's
// crypto_auth (HMAC-SHA512-256).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/clock.h"
#include "core/base/log.h"
#include "core/net/socket.h"

namespace hvd {

class JobKey {
 public:
  static constexpr std::size_t kBytes = 32;

  static JobKey random();
  // Parses 64 hexadecimal digits; throws InvalidArgument (whose text does not repeat them).
  static JobKey from_hex(std::string_view hex);
  std::string to_hex() const;

  const std::array<unsigned char, kBytes>& bytes() const;

 private:
  std::array<unsigned char, kBytes> bytes_{};
};

// A hash of the job key that identifies the job; the key cannot be recovered from it.
std::uint64_t job_number(const JobKey& key);

// The purpose of a connection; part of the proof.
enum class Purpose : std::uint32_t {
  store = 1,
  control = 2,
  data = 3,
  shared_memory = 4,
  messages = 5,
  parameters = 6,
  agents = 7
};
const char* purpose_name(Purpose purpose);

struct Peer {
  Socket socket;
  int rank = -1;
  std::size_t listener = 0;  // the number of the acceptor's listener that it has come to
};

// A connection that has not authenticated within this time is dropped.
inline constexpr Duration kProofTime = std::chrono::seconds(2);

// Client side: connects and authenticates; again if this process was stopped for so long that the server has dropped
// the connection, and if the connection ends before anything was heard: its listener has been closed, perhaps to make
// way for another one at the same port. Throws Timeout, PeerLost (also if the server rejects the key: the text says
// so), and what the alarm throws while there is no connection.
Socket connect_authenticated(const Address& address, const JobKey& key, Purpose purpose, int this_rank,
                             Deadline deadline, const Alarm& alarm = {});

// Server side: accepts any number of connections concurrently, to one listener or several, and returns those that have
// authenticated; of each listener those of one client in the order in which it has connected them. A connection
// that sends garbage, a wrong key, or nothing is dropped (at the latest after kProofTime), is logged once per Acceptor,
// and delays no other. At most 1024 pending connections are kept, and no more than a quarter of the descriptors that
// the process may have; beyond that the oldest are dropped.
class Acceptor {
 public:
  Acceptor(Listener listener, const JobKey& key, Purpose purpose, const Log& log);
  Acceptor(std::vector<Listener> listeners, const JobKey& key, Purpose purpose, const Log& log);
  ~Acceptor();
  Acceptor(Acceptor&&) noexcept;

  const Address& address(std::size_t listener = 0) const;

  // The next authenticated peer; throws Timeout("waiting for <what>") at the deadline, and what the alarm throws.
  Peer accept(Deadline deadline, std::string_view what, const Alarm& alarm = {});

  // For event loops: poll this descriptor (level-triggered readable), then call accept_now().
  int fd() const;
  std::optional<Peer> accept_now();
  // The latest time at which accept_now() must be called again, to drop pending connections.
  Deadline next_deadline() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The handshake, for callers with an event loop of their own. Pure: bytes in, bytes out.
//
//   server -> client  challenge  magic u32, version u32, server's nonce (32 bytes)
//   client -> server  proof      magic u32, purpose u32, rank i32, client's nonce (32), hash (32)
//   server -> client  reply      hash (32)
//
// Each hash is keyed with the job's key and covers the direction, both nonces, purpose and rank: a recorded message is
// invalid on another connection, at another port, and in the other direction. Each end reads exactly the bytes of its
// next message, so data that follows the handshake is not consumed.
inline constexpr std::size_t kNonceBytes = 32;
inline constexpr std::size_t kHashBytes = 32;
inline constexpr std::size_t kChallengeBytes = 8 + kNonceBytes;
inline constexpr std::size_t kProofBytes = 12 + kNonceBytes + kHashBytes;
inline constexpr std::size_t kReplyBytes = kHashBytes;

using Nonce = std::array<std::byte, kNonceBytes>;
using Challenge = std::array<std::byte, kChallengeBytes>;
using Proof = std::array<std::byte, kProofBytes>;
using Reply = std::array<std::byte, kReplyBytes>;

class ClientHandshake {
 public:
  ClientHandshake(const JobKey& key, Purpose purpose, int rank, const Nonce& local_nonce);

  // Throws PeerLost if the server does not speak hvd's protocol.
  Proof prove(const Challenge& challenge);
  // Throws PeerLost if the server does not know the key.
  void check(const Reply& reply) const;

 private:
  const JobKey key_;
  const Purpose purpose_;
  const int rank_;
  const Nonce local_nonce_;
  Nonce server_nonce_{};
};

class ServerHandshake {
 public:
  ServerHandshake(const JobKey& key, Purpose purpose, const Nonce& local_nonce);

  const Challenge& challenge() const;

  struct Verification {
    const char* rejection = nullptr;  // why the client is rejected; null: it is authenticated
    int rank = -1;
    Reply reply{};
  };
  Verification verify(const Proof& proof) const;

 private:
  const JobKey key_;
  const Purpose purpose_;
  const Nonce local_nonce_;
  Challenge challenge_{};
};

Nonce fresh_nonce();

// Unpredictable bytes from the kernel, for keys, challenges and names that must not be guessed. Any thread.
void fill_random(std::span<std::byte> bytes);

// Two lower-case hexadecimal digits per byte.
std::string to_hex(std::span<const std::byte> bytes);

}  // namespace hvd
