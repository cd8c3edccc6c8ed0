// Encrypted messages over a connection that is authenticated already (authentication.h), for the few that carry
// secrets.
//
// Each end sends a frame with a fresh X25519 public key, then frames that are sealed with XSalsa20-Poly1305. Each
// direction has its own key, derived from the job's key, the shared secret and both public keys: only a process that
// knows the job's key can take part, a recorded message cannot be replayed, and a job key that leaks later opens no
// recording. A message that is changed, repeated, left out or moved is refused.
//
// Pure, except for the random secret: bytes in, bytes out. Used by one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "core/net/authentication.h"
#include "core/net/frame.h"

namespace hvd {

class SealedStream {
 public:
  enum class End { client, server };

  // `most`: the longest message, in bytes, that this end accepts; no more memory is taken for one.
  SealedStream(const JobKey& key, End end, std::size_t most);
  ~SealedStream();
  SealedStream(const SealedStream&) = delete;
  SealedStream& operator=(const SealedStream&) = delete;

  // The frame to send first.
  Bytes greeting() const;
  // Whether the other end's greeting has come: seal() may be called.
  bool ready() const { return is_ready_; }
  // The frame to send for a message.
  Bytes seal(std::span<const std::byte> message);

  // Appends any part of what the other end has sent.
  void feed(std::span<const std::byte> bytes) { reader_.feed(bytes); }
  // The next complete message. Throws PeerLost on anything that the other end cannot have sent; the connection must
  // then be closed.
  std::optional<Bytes> next();

 private:
  using Key = std::array<unsigned char, 32>;

  void derive_keys(std::span<const std::byte> peers_public);
  Bytes open(std::span<const std::byte> sealed);

  const JobKey key_;
  const End end_;
  FrameReader reader_;
  Key secret_, public_, sending_{}, receiving_{};
  std::uint64_t sent_ = 0, received_ = 0;  // the nonces: a key is used for one stream
  bool is_ready_ = false;
};

}  // namespace hvd
