// The loop of the keeper process (keeper.h): starts what hvdrun requests, reports what has ended, and leaves nothing
// behind once hvdrun is gone. Single-threaded.
#pragma once

#include <sys/types.h>

#include "core/net/socket.h"
#include "launcher/loop/signal_source.h"

namespace hvd::launcher {

inline constexpr const char* kKeeperName = "hvd-keeper";  // in ps

// In a process that was just forked from hvdrun, whose pid is `hvdrun`, with its end of the sockets. Takes over the
// whole process, and ends it without a destructor or an at-exit handler of hvdrun's.
[[noreturn]] void run_keeper(FileDescriptor socket, const SignalSource& signals, pid_t hvdrun);

}  // namespace hvd::launcher
