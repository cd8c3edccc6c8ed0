// Threads of the runtime. Each has a name, as shown by ps -L and debuggers.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <thread>

namespace hvd {

// The engine thread. Every process of a job has one, so other processes recognise by it a process that is in a job.
inline constexpr std::string_view kEngineThread = "hvd-engine";

// Runs `body`, which must not throw, on a new thread; the first 15 bytes of its name are shown. Throws Internal if no
// thread can be created.
std::thread start_thread(std::string_view name, std::function<void()> body);

}  // namespace hvd
