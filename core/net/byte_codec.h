// Encodes and decodes the wire's values: little endian, strings and lists preceded by a 32-bit count. Numbers that are
// usually small may be written as varints: seven bits a byte, lowest first, the top bit set in all bytes but the last.
//
// The reader trusts nothing: each count is checked against the remaining bytes before anything is allocated.
#pragma once

#include <bit>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

#include "core/base/error.h"
#include "core/net/frame.h"

namespace hvd {

static_assert(std::endian::native == std::endian::little, "the wire format is little endian");

class ByteWriter {
 public:
  template <typename T>
    requires std::is_arithmetic_v<T>
  void put(T value) {
    const auto* raw = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), raw, raw + sizeof value);
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

 private:
  Bytes bytes_;
};

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <typename T>
    requires std::is_arithmetic_v<T>
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

 private:
  std::span<const std::byte> take(std::size_t count) {
    if (count > bytes_.size()) throw Internal("malformed message: it ends too early");
    const auto taken = bytes_.first(count);
    bytes_ = bytes_.subspan(count);
    return taken;
  }
  std::span<const std::byte> bytes_;
};

}  // namespace hvd
