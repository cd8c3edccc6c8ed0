// Resolves a host's name.
#pragma once

#include <string>
#include <vector>

namespace hvd::launcher {

// Returns its addresses as inet_ntop() writes them; empty if the name is unknown. Blocks on the system's resolver,
// which may be slow.
std::vector<std::string> resolve_host(const std::string& host);

}  // namespace hvd::launcher
