#include "launcher/hosts.h"

#include <charconv>
#include <numeric>

#include "core/base/error.h"

namespace hvd::launcher {
namespace {

constexpr int kMaxSlots = 1'000'000;

HostSlots parse_host(std::string_view entry) {
  const auto colon = entry.find(':');
  HostSlots result{.host = std::string(entry.substr(0, colon))};
  if (result.host.empty()) throw InvalidArgument("-H: a host's name is missing; write for instance -H localhost:4");
  if (colon == std::string_view::npos) return result;
  const std::string_view digits = entry.substr(colon + 1);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), result.slots);
  if (error != std::errc() || end != digits.data() + digits.size() || result.slots < 1 || result.slots > kMaxSlots) {
    throw InvalidArgument("-H: \"" + std::string(entry) +
                          "\" does not end in a number of slots; write for instance -H localhost:4");
  }
  return result;
}

bool is_this_host(std::string_view host, std::string_view own_hostname) {
  return host == "localhost" || host == "127.0.0.1" || host == own_hostname ||
         host == own_hostname.substr(0, own_hostname.find('.'));
}

}  // namespace

std::vector<HostSlots> parse_hosts(std::string_view text) {
  std::vector<HostSlots> result;
  while (true) {
    const auto comma = text.find(',');
    result.push_back(parse_host(text.substr(0, comma)));
    if (comma == std::string_view::npos) return result;
    text.remove_prefix(comma + 1);
  }
}

int count_local_ranks(std::optional<int> num_proc, const std::vector<HostSlots>& hosts, std::string_view own_hostname) {
  for (const HostSlots& entry : hosts) {
    if (!is_this_host(entry.host, own_hostname)) {
      throw InvalidArgument("-H: \"" + entry.host + "\" is not this host (" + std::string(own_hostname) +
                            "); several hosts are not supported yet");
    }
  }
  if (hosts.empty()) {
    if (!num_proc) throw InvalidArgument("how many processes? Say -np N, or -H localhost:N");
    return *num_proc;
  }
  const long slots = std::accumulate(hosts.begin(), hosts.end(), 0L,
                                     [](long sum, const HostSlots& entry) { return sum + entry.slots; });
  const long size = num_proc ? *num_proc : slots;
  if (size > slots) {
    throw InvalidArgument("-np " + std::to_string(size) + " but only " + std::to_string(slots) +
                          (slots == 1 ? " slot" : " slots") + "; raise it with -H localhost:" + std::to_string(size) +
                          ", or leave -H out");
  }
  if (size > kMaxSlots) throw InvalidArgument("-H: more than " + std::to_string(kMaxSlots) + " slots");
  return static_cast<int>(size);
}

}  // namespace hvd::launcher
