#include "core/net/handshake.h"

#include <cstring>

#include "core/base/error.h"
#include "tests/support/catch.h"

using namespace hvd;

namespace {

JobKey key_of(char digit) { return JobKey::from_hex(std::string(2 * JobKey::kBytes, digit)); }

Nonce nonce_of(int value) {
  Nonce nonce;
  nonce.fill(std::byte(value));
  return nonce;
}

template <std::size_t kSize>
std::array<std::byte, kSize> with_flipped_bit(std::array<std::byte, kSize> message, std::size_t at) {
  message[at] ^= std::byte{1};
  return message;
}

}  // namespace

TEST_CASE("both sides are convinced, and the server learns the rank") {
  const ServerHandshake server(key_of('a'), Purpose::store, nonce_of(1));
  ClientHandshake client(key_of('a'), Purpose::store, 42, nonce_of(2));
  const auto verdict = server.judge(client.prove(server.challenge()));
  REQUIRE(verdict.objection == nullptr);
  CHECK(verdict.rank == 42);
  CHECK_NOTHROW(client.check(verdict.reply));
}

TEST_CASE("the server refuses another key, another purpose and another challenge") {
  const ServerHandshake server(key_of('a'), Purpose::store, nonce_of(1));
  const ServerHandshake earlier(key_of('a'), Purpose::store, nonce_of(3));
  ClientHandshake right(key_of('a'), Purpose::store, 0, nonce_of(2));
  ClientHandshake wrong_key(key_of('b'), Purpose::store, 0, nonce_of(2));
  ClientHandshake wrong_purpose(key_of('a'), Purpose::data, 0, nonce_of(2));

  CHECK(server.judge(right.prove(server.challenge())).objection == nullptr);
  CHECK(server.judge(wrong_key.prove(server.challenge())).objection != nullptr);
  CHECK(server.judge(wrong_purpose.prove(server.challenge())).objection != nullptr);
  CHECK(server.judge(right.prove(earlier.challenge())).objection != nullptr);  // a recorded proof
}

TEST_CASE("no bit of a proof, and no bit of the answer, can be changed") {
  const ServerHandshake server(key_of('a'), Purpose::control, nonce_of(1));
  ClientHandshake client(key_of('a'), Purpose::control, 3, nonce_of(2));
  const Proof proof = client.prove(server.challenge());
  for (std::size_t at = 0; at < proof.size(); ++at) {
    CAPTURE(at);
    CHECK(server.judge(with_flipped_bit(proof, at)).objection != nullptr);
  }
  const Reply reply = server.judge(proof).reply;
  for (std::size_t at = 0; at < reply.size(); ++at)
    CHECK_THROWS_AS(client.check(with_flipped_bit(reply, at)), PeerLost);
}

TEST_CASE("a client's own hash sent back does not convince it") {
  const ServerHandshake server(key_of('a'), Purpose::control, nonce_of(1));
  ClientHandshake client(key_of('a'), Purpose::control, 3, nonce_of(1));
  const Proof proof = client.prove(server.challenge());
  Reply mirrored;
  std::memcpy(mirrored.data(), proof.data() + proof.size() - mirrored.size(), mirrored.size());
  CHECK_THROWS_AS(client.check(mirrored), PeerLost);
}

TEST_CASE("a challenge that is not hvd's, or another version's, is refused") {
  const ServerHandshake server(key_of('a'), Purpose::control, nonce_of(1));
  ClientHandshake client(key_of('a'), Purpose::control, 3, nonce_of(2));
  CHECK_THROWS_AS(client.prove(with_flipped_bit(server.challenge(), 0)), PeerLost);
  CHECK_THROWS_AS(client.prove(with_flipped_bit(server.challenge(), 4)), PeerLost);
}

TEST_CASE("the job's key as text") {
  const JobKey key = JobKey::random();
  CHECK(JobKey::from_hex(key.to_hex()).bytes() == key.bytes());
  CHECK(JobKey::random().bytes() != key.bytes());
  CHECK(JobKey::from_hex(std::string(64, 'A')).to_hex() == std::string(64, 'a'));

  const std::string wrong =
      GENERATE(std::string(), std::string(63, 'd'), std::string(65, 'd'), std::string(63, 'd') + "g");
  try {
    JobKey::from_hex(wrong);
    FAIL("accepted '" << wrong << "'");
  } catch (const InvalidArgument& error) {
    CHECK(std::string(error.what()).find("ddd") == std::string::npos);  // a secret is not for logs
  }
}
