#include "core/net/random_bytes.h"

#include <sys/random.h>

#include <cerrno>

#include "core/base/error.h"

namespace hvd {

void fill_random(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = getrandom(bytes.data(), bytes.size(), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) throw Internal("the kernel gives no random bytes (getrandom)");
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

std::string to_hex(std::span<const std::byte> bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const std::byte byte : bytes) {
    text += kDigits[std::to_integer<unsigned>(byte) >> 4];
    text += kDigits[std::to_integer<unsigned>(byte) & 15];
  }
  return text;
}

}  // namespace hvd
