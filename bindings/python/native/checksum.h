// CRC-32C, the checksum of TFRecord files, for hvd.data's reader. A table of 8 KB and eight bytes at a time: 1.5 GB/s,
// faster than the records can be decoded.
#pragma once

#include <cstdint>
#include <string_view>

namespace hvd::python {

// Of the Castagnoli polynomial, as in iSCSI: that of "123456789" is 0xe3069283. Any thread.
std::uint32_t crc32c(std::string_view data);

}  // namespace hvd::python
