#include "core/bootstrap/host_identity.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <array>
#include <fstream>

#include "core/base/cpus.h"

namespace hvd {

namespace {

std::string system_hostname() {
  utsname names{};
  return uname(&names) == 0 ? names.nodename : "unknown";
}

// Empty if /proc is not mounted; then the host name must suffice.
std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

std::string network_namespace() {
  std::array<char, 64> target{};
  const ssize_t length = readlink("/proc/self/ns/net", target.data(), target.size());
  return length > 0 ? std::string(target.data(), static_cast<std::size_t>(length)) : "";
}

}  // namespace

RankIdentity identify_this_process(const std::string& host_id, const std::string& hostname) {
  RankIdentity identity;
  identity.pid = static_cast<int>(getpid());
  identity.hostname = hostname.empty() ? system_hostname() : hostname;
  identity.host_key = host_id.empty() ? boot_id() + "/" + network_namespace() + "/" + system_hostname() +
                                            "/uid:" + std::to_string(geteuid())
                                      : host_id;
  identity.cpus = allowed_cpus();
  return identity;
}

}  // namespace hvd
