// gRPC's settings for a launcher. Whoever makes a server or a channel calls this first.
#pragma once

#include <cstddef>

namespace hvd::launcher {

inline constexpr std::size_t kLongestMessage = std::size_t{20} << 20;  // a value of the store is 16 MB at most

// Once; later calls do nothing. No other thread may read the environment in the meantime the first time.
//
// gRPC is silent then: standard error is the user's. It does nothing when the launcher forks, whatever the user's
// environment asks of gRPC for the ranks.
void start_grpc();

}  // namespace hvd::launcher
