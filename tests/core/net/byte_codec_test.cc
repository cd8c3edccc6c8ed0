#include "core/net/byte_codec.h"

#include "core/base/error.h"
#include "tests/support/catch.h"

using namespace hvd;

namespace {

Bytes sample() {
  ByteWriter writer;
  writer.put(std::uint8_t{7});
  writer.put(std::int64_t{-5});
  writer.put_string("hello");
  writer.put(2.5);
  writer.put(std::uint32_t{2});  // a list of two
  writer.put(std::uint16_t{1});
  writer.put(std::uint16_t{2});
  return writer.take();
}

void read_sample(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  if (reader.get<std::uint8_t>() != 7 || reader.get<std::int64_t>() != -5 || reader.get_string() != "hello" ||
      reader.get<double>() != 2.5) {
    throw std::logic_error("wrong value");
  }
  const auto count = reader.get_count(sizeof(std::uint16_t));
  for (std::uint32_t i = 0; i < count; ++i) reader.get<std::uint16_t>();
  reader.expect_end();
}

}  // namespace

TEST_CASE("values come back as they were written") { CHECK_NOTHROW(read_sample(sample())); }

TEST_CASE("the wire is little endian") {
  ByteWriter writer;
  writer.put(std::uint32_t{0x01020304});
  CHECK(writer.take() == Bytes{std::byte{4}, std::byte{3}, std::byte{2}, std::byte{1}});
}

TEST_CASE("every truncation is an error") {
  const Bytes bytes = sample();
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    CAPTURE(length);
    CHECK_THROWS_AS(read_sample(std::span(bytes).first(length)), Internal);
  }
}

TEST_CASE("bytes after the end are an error") {
  Bytes bytes = sample();
  bytes.push_back(std::byte{0});
  CHECK_THROWS_AS(read_sample(bytes), Internal);
}

TEST_CASE("a count larger than the message is an error before anything is allocated") {
  ByteWriter writer;
  writer.put(std::uint32_t{0xffffffff});
  writer.put(std::uint64_t{0});
  const Bytes bytes = writer.take();
  CHECK_THROWS_AS(ByteReader(bytes).get_string(), Internal);
  CHECK_THROWS_AS(ByteReader(bytes).get_count(1), Internal);

  ByteWriter fitting;
  fitting.put(std::uint32_t{2});
  fitting.put(std::uint64_t{0});
  const Bytes two = fitting.take();
  CHECK(ByteReader(two).get_count(4) == 2);
  CHECK_THROWS_AS(ByteReader(two).get_count(5), Internal);
}
