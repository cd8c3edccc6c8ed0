#include "launcher/remote/find_parent.h"

#include <algorithm>

#include "core/base/error.h"

namespace hvd::launcher {
namespace {

constexpr Duration kTry = 1s;

}  // namespace

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
