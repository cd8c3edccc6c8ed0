// The three messages of the authentication handshake (authentication.h). Pure: bytes in, bytes out.
//
//   server -> client  challenge  magic u32, version u32, server's nonce (32 bytes)
//   client -> server  proof      magic u32, purpose u32, rank i32, client's nonce (32), hash (32)
//   server -> client  reply      hash (32)
//
// Each hash is keyed with the job's key and covers the direction, both nonces, purpose and rank: a recorded message is
// invalid on another connection, at another port, and in the other direction. Each end reads exactly the bytes of its
// next message, so data that follows the handshake is not consumed.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "core/net/authentication.h"

namespace hvd {

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

  const Challenge& challenge() const { return challenge_; }

  struct Verdict {
    const char* objection = nullptr;  // why the client is rejected; null: it is authenticated
    int rank = -1;
    Reply reply{};
  };
  Verdict judge(const Proof& proof) const;

 private:
  const JobKey key_;
  const Purpose purpose_;
  const Nonce local_nonce_;
  Challenge challenge_{};
};

Nonce fresh_nonce();

}  // namespace hvd
