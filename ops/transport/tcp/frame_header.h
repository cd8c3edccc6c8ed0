// The header of each message on a data connection: 32 bytes, little endian, followed by `length` bytes of payload.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>

#include "ops/transport/transport.h"

namespace hvd {

struct DataFrameHeader {
  static constexpr std::uint32_t kMagic = 0x64766802;

  std::uint32_t magic = kMagic;
  std::uint32_t sender = 0;  // global rank
  std::uint32_t process_set = 0;
  std::uint32_t step = 0;
  std::uint64_t sequence = 0;
  std::uint64_t length = 0;

  Tag tag() const { return {.process_set = process_set, .step = step, .sequence = sequence}; }
};

static_assert(sizeof(DataFrameHeader) == 32 && std::is_trivially_copyable_v<DataFrameHeader>);
static_assert(std::endian::native == std::endian::little, "the wire format is little endian");

}  // namespace hvd
