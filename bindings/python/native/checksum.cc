#include "bindings/python/native/checksum.h"

#include <array>
#include <cstddef>

namespace hvd::python {

namespace {

constexpr std::uint32_t kReflectedPolynomial = 0x82f63b78;
constexpr std::size_t kStep = 8;

using Table = std::array<std::uint32_t, 256>;

// tables[k][b]: what byte b contributes if k more bytes follow it in the step.
constexpr std::array<Table, kStep> make_tables() {
  std::array<Table, kStep> tables{};
  for (std::uint32_t byte = 0; byte < 256; ++byte) {
    std::uint32_t value = byte;
    for (int bit = 0; bit < 8; ++bit) {
      value = (value >> 1) ^ ((value & 1) != 0 ? kReflectedPolynomial : 0);
    }
    tables[0][byte] = value;
  }
  for (std::size_t k = 1; k < kStep; ++k) {
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const std::uint32_t before = tables[k - 1][byte];
      tables[k][byte] = (before >> 8) ^ tables[0][before & 0xff];
    }
  }
  return tables;
}

constexpr std::array<Table, kStep> kTables = make_tables();

}  // namespace

std::uint32_t crc32c(std::string_view data) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(data.data());
  std::size_t left = data.size();
  std::uint32_t crc = ~std::uint32_t{0};
  for (; left >= kStep; left -= kStep, bytes += kStep) {
    std::uint32_t next = 0;
    for (std::size_t i = 0; i < kStep; ++i) {
      const std::uint32_t byte = bytes[i] ^ (i < 4 ? (crc >> (8 * i)) & 0xff : 0);
      next ^= kTables[kStep - 1 - i][byte];
    }
    crc = next;
  }
  for (; left > 0; --left, ++bytes) {
    crc = (crc >> 8) ^ kTables[0][(crc ^ *bytes) & 0xff];
  }
  return ~crc;
}

}  // namespace hvd::python
