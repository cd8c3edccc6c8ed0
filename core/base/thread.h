// The calling thread's name, as ps -L and debuggers show it (15 bytes).
#pragma once

#include <string_view>

namespace hvd {

// The engine's thread, which each process of a job has: other processes know by it that one is in a job.
inline constexpr std::string_view kEngineThread = "hvd-engine";

void name_this_thread(std::string_view name);

}  // namespace hvd
