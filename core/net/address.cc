#include <sys/un.h>

#include <charconv>

#include "core/base/error.h"
#include "core/net/socket.h"

namespace hvd {

namespace {

constexpr std::string_view kTcp = "tcp:";
constexpr std::string_view kUnix = "unix:";
constexpr std::size_t kMaxHostBytes = 255;
constexpr std::size_t kMaxAbstractNameBytes = sizeof(sockaddr_un::sun_path) - 1;

Address parse_tcp(std::string_view text, const InvalidArgument& malformed) {
  const auto colon = text.rfind(':');
  if (colon == std::string_view::npos) throw malformed;
  std::string_view host = text.substr(0, colon);
  const std::string_view port_text = text.substr(colon + 1);

  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    throw malformed;
  }
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(port_text.data(), port_text.data() + port_text.size(), port);
  const bool whole = error == std::errc() && end == port_text.data() + port_text.size();
  if (!whole || port == 0 || host.empty() || host.size() > kMaxHostBytes) throw malformed;
  return {.kind = Address::Kind::tcp, .host = std::string(host), .port = port};
}

}  // namespace

std::string Address::to_string() const {
  if (kind == Kind::unix_abstract) return std::string(kUnix) + host;
  const bool is_ipv6 = host.find(':') != std::string::npos;
  return std::string(kTcp) + (is_ipv6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

Address Address::parse(std::string_view text) {
  const InvalidArgument malformed("'" + std::string(text.substr(0, kMaxHostBytes)) +
                                  "' is not an address like tcp:10.0.0.7:4711, tcp:[::1]:4711 or unix:name");
  if (text.find('\0') != std::string_view::npos) throw malformed;
  if (text.starts_with(kTcp)) return parse_tcp(text.substr(kTcp.size()), malformed);
  if (!text.starts_with(kUnix)) throw malformed;
  text.remove_prefix(kUnix.size());
  if (text.empty() || text.size() > kMaxAbstractNameBytes) throw malformed;
  return {.kind = Kind::unix_abstract, .host = std::string(text), .port = 0};
}

}  // namespace hvd
