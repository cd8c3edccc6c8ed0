#include "launcher/agents/peer_name.h"

namespace hvd::launcher {

std::string peer_name(std::string_view of_grpc) {
  std::string name(of_grpc.substr(of_grpc.starts_with("ipv") ? of_grpc.find(':') + 1 : 0));
  for (const auto& [code, bracket] : {std::pair{"%5B", '['}, {"%5D", ']'}}) {
    if (const std::size_t at = name.find(code); at != std::string::npos) name.replace(at, 3, 1, bracket);
  }
  return name;
}

}  // namespace hvd::launcher
