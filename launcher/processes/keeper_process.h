// The main loop of the keeper process (keeper.h): starts the processes that hvdrun requests, reports those that have
// ended, and kills what is left once hvdrun is gone. Single-threaded.
#pragma once

#include <sys/types.h>

#include "core/net/socket.h"
#include "launcher/loop/signal_source.h"

namespace hvd::launcher {

inline constexpr const char* kKeeperName = "hvd-keeper";  // as ps shows it

// Called in a process just forked from hvdrun, whose pid is `hvdrun`, with the keeper's end of the socket pair. Takes
// over the process and ends it with _exit(): no destructors or at-exit handlers of hvdrun run.
[[noreturn]] void run_keeper(FileDescriptor socket, const SignalSource& signals, pid_t hvdrun);

}  // namespace hvd::launcher
