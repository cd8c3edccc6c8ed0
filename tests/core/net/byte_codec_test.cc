#include "core/net/byte_codec.h"

#include <deque>

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

namespace {

enum class Colour : std::uint8_t { red, green };

struct Inner {
  std::string text;
  bool flag = false;
  bool operator==(const Inner&) const = default;
  static void fields(auto& self, const auto& each) { each(self.text, self.flag); }
};

struct Outer {
  int number = 0;
  Colour colour = Colour::red;
  Duration time{};
  Inner inner;
  std::optional<Inner> perhaps;
  std::vector<Inner> list;
  std::map<std::string, std::uint64_t> map;
  bool operator==(const Outer&) const = default;
  static void fields(auto& self, const auto& each) {
    each(self.number, self.colour, self.time, self.inner, self.perhaps, self.list, self.map);
  }
};

const Outer kOuter{.number = -3,
                   .colour = Colour::green,
                   .time = Duration(5),
                   .inner = {"a", true},
                   .perhaps = Inner{"\xff", false},
                   .list = {{"b", false}, {"", true}},
                   .map = {{"x", 1}, {"y", 2}}};

}  // namespace

TEST_CASE("a struct comes back as it was written, field by field") {
  for (const Outer& value : {kOuter, Outer()}) CHECK(decode_value<Outer>(encode_value(value)) == value);
  ByteWriter writer;
  writer.put_string("a");
  writer.put(std::uint8_t{1});
  CHECK(encode_value(Inner{"a", true}) == writer.take_text());
}

TEST_CASE("a struct is refused unless it is the whole text") {
  const std::string text = encode_value(kOuter);
  for (std::size_t length = 0; length < text.size(); ++length) {
    CAPTURE(length);
    CHECK_THROWS_AS(decode_value<Outer>(text.substr(0, length)), Internal);
  }
  CHECK_THROWS_AS(decode_value<Outer>(text + "x"), Internal);
  CHECK_THROWS_AS(decode_value<bool>("\2"), Internal);
  CHECK_THROWS_AS(decode_value<std::vector<Inner>>("\xff\xff\xff\xff"), Internal);
}

namespace {

struct Flagged {
  bool a = false, b = false, c = false;
  std::deque<int> list;
  static void fields(auto& self, const auto& each) { each(Flags(self.a, self.b, self.c), self.list); }
};

}  // namespace

TEST_CASE("flags share a byte") {
  const std::string text = encode_value(Flagged{.a = true, .c = true, .list = {7}});
  CHECK(text == std::string("\5\1\0\0\0\7\0\0\0", 9));
  const auto copy = decode_value<Flagged>(text);
  CHECK(copy.a);
  CHECK_FALSE(copy.b);
  CHECK(copy.c);
  CHECK(copy.list == std::deque<int>{7});
  CHECK_THROWS_AS(decode_value<Flagged>("\x8" + text.substr(1)), Internal);
}
