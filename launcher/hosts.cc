#include "launcher/hosts.h"

#include <charconv>
#include <numeric>
#include <sstream>

#include "core/base/error.h"

namespace hvd::launcher {
namespace {

// `where` begins what is said of an error.
HostSlots parse_host(std::string_view entry, const std::string& where) {
  const auto colon = entry.find(':');
  HostSlots result{.host = std::string(entry.substr(0, colon))};
  if (result.host.empty()) throw InvalidArgument(where + ": a host's name is missing; write for instance localhost:4");
  if (colon == std::string_view::npos) return result;
  const std::string_view digits = entry.substr(colon + 1);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), result.slots);
  if (error != std::errc() || end != digits.data() + digits.size() || result.slots < 1 || result.slots > kMaxSlots) {
    throw InvalidArgument(where + ": \"" + std::string(entry) +
                          "\" does not end in a number of slots; write for instance localhost:4");
  }
  return result;
}

void check_number(long processes) {
  if (processes <= kMaxSlots) return;
  throw InvalidArgument(std::to_string(processes) + " processes are more than " + std::to_string(kMaxSlots));
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
    result.push_back(parse_host(text.substr(0, comma), "-H"));
    if (comma == std::string_view::npos) return result;
    text.remove_prefix(comma + 1);
  }
}

std::vector<HostSlots> parse_hostfile(std::string_view text) {
  std::vector<HostSlots> result;
  int number = 0;
  for (std::istringstream lines{std::string(text)}; !lines.eof();) {
    std::string line;
    std::getline(lines, line);
    ++number;
    std::istringstream words(line.substr(0, line.find('#')));
    std::string host;
    if (!(words >> host)) continue;
    const std::string where = "line " + std::to_string(number) + " of the hostfile";
    result.push_back(parse_host(host, where));
    for (std::string word; words >> word;) {
      if (word.starts_with("slots=")) {
        result.back() = parse_host(result.back().host + ":" + word.substr(6), where);
      } else if (!word.starts_with("max_slots=") && !word.starts_with("max-slots=")) {
        throw InvalidArgument(where + ": \"" + word + "\" is not understood; write for instance node1 slots=4");
      }
    }
  }
  if (result.empty()) throw InvalidArgument("the hostfile names no host");
  return result;
}

int count_local_ranks(std::optional<int> num_proc, const std::vector<HostSlots>& hosts, std::string_view own_hostname,
                      bool oversubscribe) {
  for (const HostSlots& entry : hosts) {
    if (!is_this_host(entry.host, own_hostname)) {
      throw InvalidArgument("\"" + entry.host + "\" is not this host (" + std::string(own_hostname) +
                            "); several hosts are not supported yet");
    }
  }
  if (hosts.empty()) {
    if (!num_proc) throw InvalidArgument("how many processes? Say -np N, or -H localhost:N");
    check_number(*num_proc);
    return *num_proc;
  }
  const long slots = std::accumulate(hosts.begin(), hosts.end(), 0L,
                                     [](long sum, const HostSlots& entry) { return sum + entry.slots; });
  const long size = num_proc ? *num_proc : slots;
  if (size > slots && !oversubscribe) {
    throw InvalidArgument("-np " + std::to_string(size) + " but only " + std::to_string(slots) +
                          (slots == 1 ? " slot" : " slots") + "; raise it with -H localhost:" + std::to_string(size) +
                          ", with --oversubscribe, or leave -H out");
  }
  check_number(size);
  return static_cast<int>(size);
}

}  // namespace hvd::launcher
