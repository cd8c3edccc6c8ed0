// An address as people write it, "10.9.0.2:41822" or "[::1]:41822", of the one that gRPC has: "ipv6:%5B::1%5D:41822".
#pragma once

#include <string>
#include <string_view>

namespace hvd::launcher {

// Pure.
std::string peer_name(std::string_view of_grpc);

}  // namespace hvd::launcher
