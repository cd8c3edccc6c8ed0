#include "core/net/handshake.h"

#include <sodium.h>

#include <cstring>
#include <string_view>

#include "core/base/error.h"
#include "core/net/authentication.h"

namespace hvd {

namespace {

static_assert(crypto_auth_KEYBYTES == JobKey::kBytes && crypto_auth_BYTES == kHashBytes);

constexpr std::uint32_t kMagic = 0x64766802;
constexpr std::uint32_t kVersion = 1;
constexpr std::string_view kClientSays = "hvd handshake: client";
constexpr std::string_view kServerSays = "hvd handshake: server";
static_assert(kClientSays.size() == kServerSays.size());

// Appends values to a message.
class Cursor {
 public:
  explicit Cursor(std::byte* at) : at_(at) {}
  template <typename T>
  Cursor& put(const T& value) {
    std::memcpy(at_, &value, sizeof value);
    at_ += sizeof value;
    return *this;
  }

 private:
  std::byte* at_;
};

template <typename T>
T read_at(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// The input of a hash; fields of fixed size, so that no two statements have the same bytes.
struct Statement {
  Statement(std::string_view direction, const Nonce& server, const Nonce& client, std::uint32_t purpose,
            std::int32_t rank) {
    std::memcpy(bytes.data(), direction.data(), direction.size());
    Cursor(bytes.data() + kClientSays.size()).put(server).put(client).put(purpose).put(rank);
  }
  const unsigned char* data() const { return reinterpret_cast<const unsigned char*>(bytes.data()); }
  std::array<std::byte, kClientSays.size() + 2 * kNonceBytes + 8> bytes;
};

Reply keyed_hash(const Statement& statement, const JobKey& key) {
  Reply hash;
  crypto_auth(reinterpret_cast<unsigned char*>(hash.data()), statement.data(), statement.bytes.size(),
              key.bytes().data());
  return hash;
}

// In constant time.
bool hash_is_right(const std::byte* hash, const Statement& statement, const JobKey& key) {
  return crypto_auth_verify(reinterpret_cast<const unsigned char*>(hash), statement.data(), statement.bytes.size(),
                            key.bytes().data()) == 0;
}

void initialize_sodium() {
  if (sodium_init() < 0) throw Internal("libsodium cannot be initialized");
}

}  // namespace

Nonce fresh_nonce() {
  Nonce nonce;
  fill_random(nonce);
  return nonce;
}

ClientHandshake::ClientHandshake(const JobKey& key, Purpose purpose, int rank, const Nonce& local_nonce)
    : key_(key), purpose_(purpose), rank_(rank), local_nonce_(local_nonce) {
  initialize_sodium();
}

Proof ClientHandshake::prove(const Challenge& challenge) {
  if (read_at<std::uint32_t>(challenge.data()) != kMagic) throw PeerLost("what answers there is not hvd");
  if (read_at<std::uint32_t>(challenge.data() + 4) != kVersion) throw PeerLost("another version of hvd answers there");
  server_nonce_ = read_at<Nonce>(challenge.data() + 8);

  const auto purpose = static_cast<std::uint32_t>(purpose_);
  const std::int32_t rank = rank_;
  Proof proof;
  Cursor(proof.data())
      .put(kMagic)
      .put(purpose)
      .put(rank)
      .put(local_nonce_)
      .put(keyed_hash(Statement(kClientSays, server_nonce_, local_nonce_, purpose, rank), key_));
  return proof;
}

void ClientHandshake::check(const Reply& reply) const {
  const Statement expected(kServerSays, server_nonce_, local_nonce_, static_cast<std::uint32_t>(purpose_), rank_);
  if (!hash_is_right(reply.data(), expected, key_)) throw PeerLost("what answers there does not know the job's key");
}

ServerHandshake::ServerHandshake(const JobKey& key, Purpose purpose, const Nonce& local_nonce)
    : key_(key), purpose_(purpose), local_nonce_(local_nonce) {
  initialize_sodium();
  Cursor(challenge_.data()).put(kMagic).put(kVersion).put(local_nonce_);
}

ServerHandshake::Verdict ServerHandshake::judge(const Proof& proof) const {
  const auto magic = read_at<std::uint32_t>(proof.data());
  const auto purpose = read_at<std::uint32_t>(proof.data() + 4);
  const auto rank = read_at<std::int32_t>(proof.data() + 8);
  const auto client_nonce = read_at<Nonce>(proof.data() + 12);
  const std::byte* hash = proof.data() + 12 + kNonceBytes;

  if (magic != kMagic) return {.objection = "it does not speak hvd's protocol"};
  if (!hash_is_right(hash, Statement(kClientSays, local_nonce_, client_nonce, purpose, rank), key_)) {
    return {.objection = "it does not know the job's key"};
  }
  if (purpose != static_cast<std::uint32_t>(purpose_)) return {.objection = "it wants another port of this job"};
  return {.rank = rank, .reply = keyed_hash(Statement(kServerSays, local_nonce_, client_nonce, purpose, rank), key_)};
}

}  // namespace hvd
