// Initializes gRPC with the settings of the launcher. Call it before creating a server or a channel.
#pragma once

#include <cstddef>

namespace hvd::launcher {

inline constexpr std::size_t kLongestMessage = std::size_t{20} << 20;  // a value of the store is 16 MB at most

// The first call must not run concurrently with a thread that reads the environment; later calls do nothing.
//
// Turns off gRPC's logging, because standard error belongs to the user, and its fork handlers, whatever the user's
// environment sets for gRPC in the ranks.
void start_grpc();

}  // namespace hvd::launcher
