#include "launcher/plan/hosts.h"

#include <algorithm>
#include <charconv>
#include <sstream>

#include "core/base/error.h"

namespace hvd::launcher {
namespace {

int parse_slots(std::string_view digits, std::string_view entry, const std::string& where) {
  int slots = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), slots);
  if (error == std::errc() && end == digits.data() + digits.size() && slots >= 1 && slots <= kMaxSlots) return slots;
  throw InvalidArgument(where + ": \"" + std::string(entry) +
                        "\" does not end in a number of slots; write for instance localhost:4");
}

// Names are passed on the command line of ssh: they must not look like its options.
void check_name(std::string_view name, std::string_view entry, const std::string& where) {
  if (name.empty()) throw InvalidArgument(where + ": a host's name is missing; write for instance localhost:4");
  const auto is_odd = [](unsigned char c) { return c <= ' ' || c == 0x7f; };
  if (name.front() == '-' || std::ranges::any_of(name, is_odd)) {
    throw InvalidArgument(where + ": \"" + std::string(entry) + "\" is not a host's name");
  }
}

// `where` is the beginning of error messages.
HostSlots parse_host(std::string_view entry, const std::string& where) {
  const auto colon = entry.find(':');
  std::string_view name = entry.substr(0, colon);
  HostSlots result;
  if (const auto at = name.find('@'); at != std::string_view::npos) {
    check_name(name.substr(0, at), entry, where);
    result.user = name.substr(0, at);
    name.remove_prefix(at + 1);
  }
  check_name(name, entry, where);
  result.host = name;
  if (colon != std::string_view::npos) result.slots = parse_slots(entry.substr(colon + 1), entry, where);
  return result;
}

// Parses "slots=4" and the like; returns false for other words.
bool parse_clause(std::string_view word, HostSlots& host, const std::string& where) {
  const auto equals = word.find('=');
  if (equals == std::string_view::npos) return false;
  const std::string_view name = word.substr(0, equals), value = word.substr(equals + 1);
  if (name == "slots") {
    host.slots = parse_slots(value, word, where);
  } else if (name == "max_slots" || name == "max-slots") {
    host.max_slots = parse_slots(value, word, where);
  } else {
    return false;
  }
  return true;
}

std::optional<int> sum(std::optional<int> a, std::optional<int> b) {
  return a && b ? std::optional(*a + *b) : a ? a : b;
}

// 127.0.0.0/8 and ::1.
bool is_loopback(std::string_view address) { return address.starts_with("127.") || address == "::1"; }

}  // namespace

void add_host(std::vector<HostSlots>& hosts, HostSlots host) {
  const auto known = std::ranges::find(hosts, host.host, &HostSlots::host);
  if (known == hosts.end()) {
    hosts.push_back(std::move(host));
    return;
  }
  if (known->user != host.user) {
    throw InvalidArgument(host.host + " is named twice, to log in as \"" + known->user + "\" and \"" + host.user +
                          "\"");
  }
  // A repeated name without a number adds one slot.
  known->slots = known->slots.value_or(1) + host.slots.value_or(1);
  known->max_slots = sum(known->max_slots, host.max_slots);
  if (*known->slots > kMaxSlots)
    throw InvalidArgument(host.host + ": more than " + std::to_string(kMaxSlots) + " slots");
}

std::vector<HostSlots> parse_hosts(std::string_view text, int without_number) {
  std::vector<HostSlots> result;
  while (true) {
    const auto comma = text.find(',');
    HostSlots host = parse_host(text.substr(0, comma), "-H");
    if (!host.slots) host.slots = without_number;
    add_host(result, std::move(host));
    if (comma == std::string_view::npos) return result;
    text.remove_prefix(comma + 1);
  }
}

std::vector<HostSlots> parse_hostfile(std::string_view text, const std::string& name) {
  std::vector<HostSlots> result;
  int number = 0;
  for (std::istringstream lines{std::string(text)}; !lines.eof();) {
    std::string line;
    std::getline(lines, line);
    ++number;
    std::istringstream words(line.substr(0, line.find('#')));
    std::string entry;
    if (!(words >> entry)) continue;
    const std::string where = "line " + std::to_string(number) + " of " + name;
    HostSlots host = parse_host(entry, where);
    for (std::string word; words >> word;) {
      if (parse_clause(word, host, where)) continue;
      throw InvalidArgument(where + ": \"" + word + "\" is not understood; write for instance node1 slots=4");
    }
    if (host.max_slots && host.max_slots < host.slots.value_or(1)) {
      throw InvalidArgument(where + ": more slots than max_slots");
    }
    add_host(result, std::move(host));
  }
  if (result.empty()) throw InvalidArgument(name + " names no host");
  return result;
}

bool is_this_host(std::string_view host, const LocalNames& own, const std::vector<std::string>& resolved) {
  const std::string_view hostname = own.hostname;
  const auto is_local = [&](std::string_view address) {
    return is_loopback(address) || std::ranges::find(own.addresses, address) != own.addresses.end();
  };
  return host == "localhost" || host == hostname || host == hostname.substr(0, hostname.find('.')) || is_local(host) ||
         std::ranges::any_of(resolved, is_local);
}

std::vector<HostSlots> with_local_host_once(const std::vector<HostSlots>& hosts, const std::vector<bool>& is_local) {
  std::vector<HostSlots> result;
  std::string own_name;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    HostSlots host = hosts[i];
    if (is_local[i]) {
      if (own_name.empty()) own_name = host.host;
      host.host = own_name;
      host.user.clear();  // there is no login
    }
    add_host(result, std::move(host));
  }
  return result;
}

}  // namespace hvd::launcher
