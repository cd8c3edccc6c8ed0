#include "core/net/sealed_stream.h"

#include <algorithm>
#include <string>

#include "core/base/error.h"
#include "tests/support/catch.h"

using namespace hvd;

namespace {

constexpr std::size_t kMaxSealed = 1000;

JobKey sealing_key(char digit) { return JobKey::from_hex(std::string(64, digit)); }

Bytes plain_text(const std::string& text) {
  const auto raw = std::as_bytes(std::span(text));
  return {raw.begin(), raw.end()};
}

// Both ends, with their greetings exchanged.
struct SealedPair {
  explicit SealedPair(char client_key = 'a', char server_key = 'a')
      : client(sealing_key(client_key), SealedStream::End::client, kMaxSealed),
        server(sealing_key(server_key), SealedStream::End::server, kMaxSealed) {
    client.feed(server.greeting());
    server.feed(client.greeting());
    CHECK_FALSE(client.ready());
    CHECK_FALSE(client.next().has_value());
    CHECK_FALSE(server.next().has_value());
    REQUIRE(client.ready());
  }
  SealedStream client, server;
};

}  // namespace

TEST_CASE("both ends open what the other has sealed, and nobody reads it on the way") {
  SealedPair ends;
  for (const std::string text : {"first", "", "second"}) {
    const Bytes frame = ends.client.seal(plain_text(text)), answer = ends.server.seal(plain_text("re: " + text));
    const Bytes plain = plain_text(text);
    CHECK((plain.empty() || std::ranges::search(frame, plain).empty()));
    for (const std::byte byte : frame) ends.server.feed(std::span(&byte, 1));
    CHECK(ends.server.next() == plain);
    ends.client.feed(answer);
    CHECK(ends.client.next() == plain_text("re: " + text));
  }
}

TEST_CASE("another key opens nothing") {
  SealedPair ends('a', 'b');
  ends.server.feed(ends.client.seal(plain_text("secret")));
  CHECK_THROWS_AS(ends.server.next(), PeerLost);
}

TEST_CASE("what is changed, repeated, left out or sent back is refused") {
  {
    SealedPair ends;
    Bytes frame = ends.client.seal(plain_text("text"));
    frame.back() ^= std::byte{1};
    ends.server.feed(frame);
    CHECK_THROWS_AS(ends.server.next(), PeerLost);
  }
  {
    SealedPair ends;
    const Bytes frame = ends.client.seal(plain_text("text"));
    ends.server.feed(frame);
    ends.server.feed(frame);
    CHECK(ends.server.next() == plain_text("text"));
    CHECK_THROWS_AS(ends.server.next(), PeerLost);
  }
  {
    SealedPair ends;
    ends.client.seal(plain_text("left out"));
    ends.server.feed(ends.client.seal(plain_text("text")));
    CHECK_THROWS_AS(ends.server.next(), PeerLost);
  }
  {
    SealedPair ends;
    ends.client.feed(ends.client.seal(plain_text("text")));
    CHECK_THROWS_AS(ends.client.next(), PeerLost);
  }
}

TEST_CASE("a recorded stream cannot be replayed") {
  SealedStream client(sealing_key('a'), SealedStream::End::client, kMaxSealed);
  SealedStream first(sealing_key('a'), SealedStream::End::server, kMaxSealed);
  SealedStream second(sealing_key('a'), SealedStream::End::server, kMaxSealed);
  client.feed(first.greeting());
  client.next();
  second.feed(client.greeting());
  second.feed(client.seal(plain_text("secret")));
  CHECK_THROWS_AS(second.next(), PeerLost);
}

TEST_CASE("messages are bounded, and so is what comes instead of one") {
  SealedPair ends;
  ends.server.feed(ends.client.seal(Bytes(kMaxSealed)));
  CHECK(ends.server.next()->size() == kMaxSealed);
  ends.server.feed(ends.client.seal(Bytes(kMaxSealed + 1)));
  CHECK_THROWS_AS(ends.server.next(), PeerLost);
  for (const Bytes& instead : {Bytes(100), make_frame(Bytes(31)), make_frame(Bytes(32)), make_frame(Bytes(33))}) {
    SealedStream end(sealing_key('a'), SealedStream::End::server, kMaxSealed);
    end.feed(instead);  // a public key of zeros is refused, too: its shared secret is known
    CHECK_THROWS_AS(end.next(), PeerLost);
    CHECK_THROWS_AS(end.seal({}), Internal);
  }
}
