// What a host's name stands for.
#pragma once

#include <string>
#include <vector>

namespace hvd::launcher {

// Its addresses, as inet_ntop() writes them; none if nobody knows it. Asks the resolver, which may take its time.
std::vector<std::string> resolve_host(const std::string& host);

}  // namespace hvd::launcher
