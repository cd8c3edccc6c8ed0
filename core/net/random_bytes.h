// Unpredictable bytes from the kernel, for keys, challenges and names that must not be guessed. Any thread.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace hvd {

void fill_random(std::span<std::byte> bytes);

// Two lower-case hexadecimal digits per byte.
std::string to_hex(std::span<const std::byte> bytes);

}  // namespace hvd
