#include "launcher/remote/bootstrap.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>

#include "core/base/error.h"

namespace hvd::launcher {
namespace {

constexpr std::size_t kMaxDigits = 6;
constexpr std::size_t kMaxBytes = 256 * 1024;

[[noreturn]] void throw_foreign() {
  throw InvalidArgument("hvdrun starts `hvdrun agent` itself, on each host of a job; it is of no use otherwise");
}

char read_byte(int fd, Deadline deadline) {
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
    if (left <= 0 || poll(&entry, 1, static_cast<int>(left)) == 0) {
      throw Timeout("waiting on standard input for what hvdrun tells its agents");
    }
    char byte = 0;
    const ssize_t count = read(fd, &byte, 1);
    if (count == 1) return byte;
    if (count == 0 || (errno != EINTR && errno != EAGAIN)) throw_foreign();
  }
}

std::size_t read_length(int fd, Deadline deadline) {
  std::string digits;
  for (char byte = read_byte(fd, deadline); byte != '\n'; byte = read_byte(fd, deadline)) {
    if (byte < '0' || byte > '9' || digits.size() == kMaxDigits) throw_foreign();
    digits += byte;
  }
  std::size_t length = 0;
  std::from_chars(digits.data(), digits.data() + digits.size(), length);
  if (length == 0 || length > kMaxBytes) throw_foreign();
  return length;
}

constexpr Duration kTry = 1s;

}  // namespace

std::string encode_bootstrap(const proto::Bootstrap& bootstrap) {
  const std::string bytes = bootstrap.SerializeAsString();
  return std::to_string(bytes.size()) + "\n" + bytes;
}

proto::Bootstrap read_bootstrap(int fd, Deadline deadline) {
  if (isatty(fd) == 1) throw_foreign();
  std::string bytes(read_length(fd, deadline), '\0');
  for (char& byte : bytes) byte = read_byte(fd, deadline);
  proto::Bootstrap bootstrap;
  if (!bootstrap.ParseFromString(bytes)) throw_foreign();
  return bootstrap;
}

Way find_parent(const std::vector<Address>& addresses, Deadline deadline) {
  while (true) {
    std::string failures;
    for (const Address& address : addresses) {
      try {
        const Socket probe = Socket::connect(address, std::min(deadline, deadline_after(kTry)));
        return {.parent = address, .local_address = probe.local_host()};
      } catch (const Error& error) {
        failures += (failures.empty() ? "" : "; ") + std::string(error.what());
      }
    }
    if (Clock::now() >= deadline) throw Timeout("cannot reach hvdrun: " + failures);
  }
}

std::vector<std::string> addresses_of(const std::vector<LocalAddress>& own,
                                      const std::vector<std::string>& interfaces) {
  std::vector<std::string> result;
  std::string there;
  for (const LocalAddress& entry : own) {
    there += (there.empty() ? "" : ", ") + entry.interface + " (" + entry.address + ")";
    if (interfaces.empty()) result.push_back(entry.address);
  }
  for (const std::string& interface : interfaces) {
    for (const LocalAddress& entry : own) {
      if (entry.interface == interface) result.push_back(entry.address);
    }
  }
  if (!interfaces.empty() && result.empty()) {
    throw InvalidArgument("--network-interface: none of those is here; there " +
                          (there.empty() ? "is no network" : "are " + there));
  }
  return result;
}

}  // namespace hvd::launcher
