// Encodes and decodes the wire's values: little endian, strings and lists preceded by a 32-bit count. Numbers that are
// usually small may be written as varints: seven bits a byte, lowest first, the top bit set in all bytes but the last.
//
// A struct that is sent lists its fields once, for both directions:
//
//   static void fields(auto& self, const auto& each) { each(self.rank, self.name, self.cpus); }
//
// They may be numbers, enums with a fixed underlying type (whose owner checks the value read), strings, durations,
// other such structs, and optionals (preceded by a bool), lists and maps of these. Flags(self.is_open, self.is_old) are
// bools that share a byte.
//
// The reader trusts nothing: each count is checked against the remaining bytes before anything is allocated.
#pragma once

#include <bit>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/base/error.h"
#include "core/net/frame.h"

namespace hvd {

static_assert(std::endian::native == std::endian::little, "the wire format is little endian");

template <typename T>
concept Number = std::is_arithmetic_v<T>;
template <typename T>
concept Enumeration = std::is_enum_v<T>;
template <typename T>
concept List = requires(T& list) { list.emplace_back(); };
template <typename T>
concept HasFields = requires(const T& value) { T::fields(value, [](const auto&...) {}); };

// Refers to up to eight bools, the first of which is the lowest bit.
template <typename... Bool>
struct Flags {
  explicit Flags(Bool&... each) : bools(each...) {}
  std::tuple<Bool&...> bools;
};

class ByteWriter {
 public:
  void put(Number auto value) {
    const auto* raw = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), raw, raw + sizeof value);
  }
  template <Enumeration T>
  void put(T value) {
    put(static_cast<std::underlying_type_t<T>>(value));
  }
  void put(Duration value) { put(value.count()); }
  void put(const std::string& text) { put_string(text); }
  template <typename T>
  void put(const std::optional<T>& value) {
    put(value.has_value());
    if (value) put(*value);
  }
  void put(const List auto& list) {
    put(static_cast<std::uint32_t>(list.size()));
    for (const auto& element : list) put(element);
  }
  template <typename Key, typename T>
  void put(const std::map<Key, T>& map) {
    put(static_cast<std::uint32_t>(map.size()));
    for (const auto& [key, value] : map) put_all(key, value);
  }
  template <typename... Bool>
  void put(const Flags<Bool...>& flags) {
    unsigned byte = 0, bit = 1;
    std::apply([&](auto... each) { ((byte |= each ? bit : 0, bit <<= 1), ...); }, flags.bools);
    put(static_cast<std::uint8_t>(byte));
  }
  template <HasFields T>
  void put(const T& value) {
    T::fields(value, [this](const auto&... field) { this->put_all(field...); });
  }
  void put_string(std::string_view text) {
    put(static_cast<std::uint32_t>(text.size()));
    const auto* raw = reinterpret_cast<const std::byte*>(text.data());
    bytes_.insert(bytes_.end(), raw, raw + text.size());
  }
  void put_varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) put(static_cast<std::uint8_t>(value | 0x80));
    put(static_cast<std::uint8_t>(value));
  }
  // Without a count.
  void put_bytes(std::span<const std::byte> bytes) { bytes_.insert(bytes_.end(), bytes.begin(), bytes.end()); }
  Bytes take() { return std::move(bytes_); }
  // For values that are kept as text: in the store, or in messages of another format.
  std::string take_text() const { return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()}; }

 private:
  void put_all(const auto&... values) { (put(values), ...); }

  Bytes bytes_;
};

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}
  explicit ByteReader(std::string_view text) : bytes_(std::as_bytes(std::span(text))) {}

  template <Number T>
  T get() {
    T value;
    std::memcpy(&value, take(sizeof value).data(), sizeof value);
    return value;
  }
  std::string get_string() {
    const auto raw = take(get<std::uint32_t>());
    return std::string(reinterpret_cast<const char*>(raw.data()), raw.size());
  }
  // Throws Internal unless the number is in its shortest form.
  std::uint64_t get_varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = get<std::uint8_t>();
      value |= std::uint64_t{byte & 0x7fu} << shift;
      if (byte >= 0x80) continue;
      if ((shift > 0 && byte == 0) || (shift == 63 && byte > 1)) break;
      return value;
    }
    throw Internal("malformed message: a non-canonical varint");
  }
  // The result points into the bytes being read.
  std::string_view get_text(std::size_t size) {
    const auto raw = take(size);
    return {reinterpret_cast<const char*>(raw.data()), raw.size()};
  }
  std::span<const std::byte> rest() const { return bytes_; }
  // A list's count; each element takes at least `element_bytes` on the wire.
  std::uint32_t get_count(std::size_t element_bytes) {
    const auto count = get<std::uint32_t>();
    if (count > bytes_.size() / element_bytes) throw Internal("malformed message: a list longer than the message");
    return count;
  }
  std::size_t remaining() const { return bytes_.size(); }
  void expect_end() const {
    if (!bytes_.empty()) throw Internal("malformed message: bytes after its end");
  }

  // What put() has written.
  template <Number T>
  void get(T& value) {
    value = get<T>();
  }
  void get(bool& value) {
    const auto byte = get<std::uint8_t>();
    if (byte > 1) throw Internal("malformed message: neither true nor false");
    value = byte != 0;
  }
  template <Enumeration T>
  void get(T& value) {
    value = static_cast<T>(get<std::underlying_type_t<T>>());
  }
  void get(Duration& value) { value = Duration(get<Duration::rep>()); }
  void get(std::string& text) { text = get_string(); }
  template <typename T>
  void get(std::optional<T>& value) {
    bool is_there = false;
    get(is_there);
    if (is_there) get(value.emplace());
  }
  void get(List auto& list) {
    for (std::uint32_t left = get_count(1); left > 0; --left) get(list.emplace_back());
  }
  template <typename Key, typename T>
  void get(std::map<Key, T>& map) {
    for (std::uint32_t left = get_count(1); left > 0; --left) {
      Key key;
      get(key);
      get(map[std::move(key)]);
    }
  }
  template <typename... Bool>
  void get(const Flags<Bool...>& flags) {
    unsigned byte = get<std::uint8_t>();
    if (byte >> sizeof...(Bool) != 0) throw Internal("malformed message: unknown flags");
    std::apply([&](auto&... each) { ((each = byte % 2 != 0, byte /= 2), ...); }, flags.bools);
  }
  template <HasFields T>
  void get(T& value) {
    T::fields(value, [this](auto&&... field) { (this->get(field), ...); });
  }

 private:
  std::span<const std::byte> take(std::size_t count) {
    if (count > bytes_.size()) throw Internal("malformed message: it ends too early");
    const auto taken = bytes_.first(count);
    bytes_ = bytes_.subspan(count);
    return taken;
  }
  std::span<const std::byte> bytes_;
};

// The text of one value.
template <typename T>
std::string encode_value(const T& value) {
  ByteWriter writer;
  writer.put(value);
  return writer.take_text();
}

// Throws Internal if the text is anything else.
template <typename T>
T decode_value(std::string_view text) {
  ByteReader reader(text);
  T value{};
  reader.get(value);
  reader.expect_end();
  return value;
}

}  // namespace hvd
