#include "core/net/sealed_stream.h"

#include <sodium.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "core/base/error.h"
#include "core/net/byte_codec.h"

namespace hvd {

namespace {

constexpr std::string_view kFromClient = "hvd sealed stream: client", kFromServer = "hvd sealed stream: server";

static_assert(crypto_scalarmult_BYTES == 32 && crypto_scalarmult_SCALARBYTES == 32);
static_assert(crypto_secretbox_KEYBYTES == crypto_generichash_BYTES &&
              JobKey::kBytes <= crypto_generichash_KEYBYTES_MAX);

const unsigned char* unsigned_bytes(std::span<const std::byte> bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

std::array<unsigned char, crypto_secretbox_NONCEBYTES> nonce_of(std::uint64_t number) {
  std::array<unsigned char, crypto_secretbox_NONCEBYTES> nonce{};
  std::memcpy(nonce.data(), &number, sizeof number);
  return nonce;
}

PeerLost foreign() { return PeerLost("it does not send what an end that knows the key would send"); }

}  // namespace

SealedStream::SealedStream(const JobKey& key, End end, std::size_t most)
    : key_(key), end_(end), reader_(most + crypto_secretbox_MACBYTES) {
  if (sodium_init() < 0) throw Internal("libsodium cannot be initialized");
  fill_random(std::as_writable_bytes(std::span(secret_)));
  crypto_scalarmult_base(public_.data(), secret_.data());
}

SealedStream::~SealedStream() {
  for (Key* key : {&secret_, &sending_, &receiving_}) sodium_memzero(key->data(), key->size());
}

Bytes SealedStream::greeting() const { return make_frame(std::as_bytes(std::span(public_))); }

Bytes SealedStream::seal(std::span<const std::byte> message) {
  if (!is_ready_) throw Internal("a message is sealed before the other end's greeting");
  Bytes sealed(message.size() + crypto_secretbox_MACBYTES);
  crypto_secretbox_easy(reinterpret_cast<unsigned char*>(sealed.data()), unsigned_bytes(message), message.size(),
                        nonce_of(sent_++).data(), sending_.data());
  return make_frame(sealed);
}

std::optional<Bytes> SealedStream::next() {
  try {
    std::optional<Bytes> frame = reader_.next();
    if (frame && !is_ready_) {
      derive_keys(*frame);
      frame = reader_.next();
    }
    return frame ? std::optional(open(*frame)) : std::nullopt;
  } catch (const Internal&) {  // no frame, or one that is too long
    throw foreign();
  }
}

Bytes SealedStream::open(std::span<const std::byte> sealed) {
  if (sealed.size() < crypto_secretbox_MACBYTES) throw foreign();
  Bytes message(sealed.size() - crypto_secretbox_MACBYTES);
  if (crypto_secretbox_open_easy(reinterpret_cast<unsigned char*>(message.data()), unsigned_bytes(sealed),
                                 sealed.size(), nonce_of(received_++).data(), receiving_.data()) != 0) {
    throw foreign();
  }
  return message;
}

void SealedStream::derive_keys(std::span<const std::byte> peers_public) {
  Key shared;
  if (peers_public.size() != public_.size() ||
      crypto_scalarmult(shared.data(), secret_.data(), unsigned_bytes(peers_public)) != 0) {
    throw foreign();
  }
  const auto own = std::as_bytes(std::span(public_));
  const auto derive = [&](std::string_view direction, Key& key) {
    ByteWriter writer;
    writer.put_string(direction);
    writer.put_bytes(std::as_bytes(std::span(shared)));
    writer.put_bytes(end_ == End::client ? own : peers_public);
    writer.put_bytes(end_ == End::client ? peers_public : own);
    Bytes statement = writer.take();
    crypto_generichash(key.data(), key.size(), unsigned_bytes(statement), statement.size(), key_.bytes().data(),
                       key_.bytes().size());
    sodium_memzero(statement.data(), statement.size());
  };
  derive(kFromClient, end_ == End::client ? sending_ : receiving_);
  derive(kFromServer, end_ == End::client ? receiving_ : sending_);
  sodium_memzero(shared.data(), shared.size());
  sodium_memzero(secret_.data(), secret_.size());
  is_ready_ = true;
}

}  // namespace hvd
