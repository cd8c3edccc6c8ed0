// Threads of the runtime. Each has a name, which ps -L and debuggers show.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <thread>

namespace hvd {

// The engine's thread, which each process of a job has: other processes know by it that one is in a job.
inline constexpr std::string_view kEngineThread = "hvd-engine";

// Runs `body`, which must not throw, on a thread of its own; of its name, 15 bytes are shown. Throws Internal if there
// is no thread to be had.
std::thread start_thread(std::string_view name, std::function<void()> body);

}  // namespace hvd
