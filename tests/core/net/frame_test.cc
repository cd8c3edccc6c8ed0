#include "core/net/frame.h"

#include <cstring>
#include <string>

#include "core/base/error.h"
#include "tests/support/catch.h"

using namespace hvd;

namespace {

Bytes bytes_of(const std::string& text) {
  const auto raw = std::as_bytes(std::span(text));
  return Bytes(raw.begin(), raw.end());
}

Bytes header(std::uint32_t magic, std::uint32_t length) {
  Bytes bytes(kFrameHeaderBytes);
  std::memcpy(bytes.data(), &magic, sizeof magic);
  std::memcpy(bytes.data() + 4, &length, sizeof length);
  return bytes;
}

}  // namespace

TEST_CASE("frames come out whole, however the stream is cut") {
  const std::vector<Bytes> messages{bytes_of("first"), Bytes{}, bytes_of(std::string(1000, 'x')), bytes_of("last")};
  Bytes stream;
  for (const Bytes& message : messages) {
    const Bytes frame = make_frame(message);
    stream.insert(stream.end(), frame.begin(), frame.end());
  }
  for (const std::size_t piece : {std::size_t{1}, std::size_t{7}, std::size_t{8}, std::size_t{1000}, stream.size()}) {
    CAPTURE(piece);
    FrameReader reader;
    std::vector<Bytes> seen;
    for (std::size_t at = 0; at < stream.size(); at += piece) {
      reader.feed(std::span(stream).subspan(at, std::min(piece, stream.size() - at)));
      while (auto message = reader.next()) seen.push_back(*message);
    }
    CHECK(seen == messages);
    CHECK_FALSE(reader.next());
  }
}

TEST_CASE("a frame's length is limited") {
  FrameReader reader(100);
  SECTION("at the limit") {
    reader.feed(make_frame(Bytes(100)));
    CHECK(reader.next()->size() == 100);
  }
  SECTION("one above, seen in the header already") {
    reader.feed(header(kFrameMagic, 101));
    CHECK_THROWS_AS(reader.next(), Internal);
  }
  SECTION("as large as a length can be") {
    reader.feed(header(kFrameMagic, 0xffffffff));
    CHECK_THROWS_AS(reader.next(), Internal);
  }
  SECTION("nobody makes a larger one") {
    CHECK(make_frame(Bytes(kMaxFrameBytes)).size() == kMaxFrameBytes + kFrameHeaderBytes);
    CHECK_THROWS_AS(make_frame(Bytes(kMaxFrameBytes + 1)), InvalidArgument);
  }
}

TEST_CASE("a wrong magic number is noticed after four bytes") {
  FrameReader reader;
  const Bytes wrong = header(kFrameMagic + 1, 0);
  reader.feed(std::span(wrong).first(3));
  CHECK_FALSE(reader.next());
  reader.feed(std::span(wrong).subspan(3, 1));
  CHECK_THROWS_AS(reader.next(), Internal);
}

TEST_CASE("a wrong magic number after a good frame") {
  FrameReader reader;
  reader.feed(make_frame(bytes_of("good")));
  reader.feed(bytes_of("GET / HTTP/1.1"));
  CHECK(reader.next() == bytes_of("good"));
  CHECK_THROWS_AS(reader.next(), Internal);
}
